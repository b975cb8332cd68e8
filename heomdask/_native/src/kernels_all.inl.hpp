// One instruction set's table of kernels; HD_ISA names it.
#include "ceilings.inl.hpp"
#include "kernels.inl.hpp"
#include "local.inl.hpp"
#include "reductions.inl.hpp"
#include "single.inl.hpp"

#define HD_JOIN(a, b) a##b
#define HD_TABLE(isa) HD_JOIN(kernels_, isa)
#define HD_TEXT_(x) #x
#define HD_TEXT(x) HD_TEXT_(x)

namespace {

template <class F, int R> constexpr KernelPair<typename F::scalar> batch_of() {
    return {table_of<Re<F, R>>(rows<Re<F, R>>), table_of<Cx<F, R>>(rows<Cx<F, R>>)};
}
constexpr int wide = 8 / F64::lanes; // registers: a cache line

} // namespace

namespace heomdask {
extern const KernelTable HD_TABLE(HD_ISA) = {
    HD_TEXT(HD_ISA),
    {batch_of<F64, 1>(), batch_of<F64, wide>()},
    {batch_of<F32, 1>(), batch_of<F32, wide>()},
    {table_of<Re<F64x4, 1>>(single_rows<Re<F64x4, 1>>),
     table_of<Cx<F64x4, 1>>(single_rows<Cx<F64x4, 1>>)},
    solve_tile<F64>,
    {multiply_adds<F64>, 2 * chains * F64::lanes},
    {multiply_adds<F32>, 2 * chains * F32::lanes},
    triad,
};
} // namespace heomdask
