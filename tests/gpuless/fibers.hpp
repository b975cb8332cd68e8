// The host's side of heomdask/_cuda/numbers.h: every thread of a block is a fiber.
#pragma once
#include <cmath>
#include <cstddef>

extern "C" {
long long fiber_block();
long long fiber_thread();
long long fiber_threads();
void fiber_barrier(int line);
void *fiber_shared(int line, std::size_t size);
}

using std::fabs, std::fma, std::sqrt;

#define HD_KERNEL extern "C"
#define HD_INLINE static inline
#define HD_UNROLL
#define HD_UNROLL_BY_4
#define HD_SHARED(type, name, count) type *const name = (type *)fiber_shared(__LINE__, sizeof(type) * (count))
#define HD_BARRIER() fiber_barrier(__LINE__)
#define HD_BLOCK fiber_block()
#define HD_THREAD fiber_thread()
#define HD_THREADS fiber_threads()
