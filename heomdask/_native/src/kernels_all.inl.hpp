// One instruction set's table of kernels; HD_ISA names it.
#include "kernels.inl.hpp"
#include "reductions.inl.hpp"

#define HD_JOIN(a, b) a##b
#define HD_TABLE(isa) HD_JOIN(kernels_, isa)
#define HD_TEXT_(x) #x
#define HD_TEXT(x) HD_TEXT_(x)

namespace heomdask {
extern const KernelTable HD_TABLE(HD_ISA) = {
    HD_TEXT(HD_ISA),
    {table_of<Re<F64>>(rows<Re<F64>>), table_of<Cx<F64>>(rows<Cx<F64>>)},
    {table_of<Re<F32>>(rows<Re<F32>>), table_of<Cx<F32>>(rows<Cx<F32>>)},
    {{}, {}},
};
} // namespace heomdask
