// Runs a kernel block by block on one thread of the host, in a chosen order of threads and blocks.
//
// Each thread of a block is a fiber that runs to its next barrier; then the next one runs. A barrier
// that not all threads of a block reach, or not the same one, is an error. Shared memory begins as
// 0xff, which is NaN.
//
// CHECK_RACES: to ThreadSanitizer each fiber is a thread of its own, ordered by barriers alone, so
// that it sees a race whatever the order was. Five things make that work: this file is not
// instrumented; two barriers in turn have objects of their own, or a thread that ran ahead would hide
// a race; stacks and shared memory are mapped anew for each block; nothing orders one block against
// another but the beginning and the end of the launch; no fiber takes the number of another one.
// CHECK_MEMORY: AddressSanitizer is told of each change of stacks.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "fibers.hpp"

#ifdef CHECK_RACES
extern "C" {
void *__tsan_get_current_fiber();
void *__tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void *);
void __tsan_switch_to_fiber(void *, unsigned);
void __tsan_set_fiber_name(void *, const char *);
void __tsan_acquire(void *);
void __tsan_release(void *);
}
#define RACES(statement) statement
#else
#define RACES(statement)
#endif
#ifdef CHECK_MEMORY
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#error "the change of stacks below is written for x86-64"
#endif
extern "C" void change_stack(void **from, void *to);
asm(".text\n"
    ".globl change_stack\n"
    ".type change_stack, @function\n"
    "change_stack:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size change_stack, . - change_stack\n");

namespace {

constexpr std::size_t STACK = 64 * 1024;

struct Fiber {
    void *top = nullptr;
    bool done = false;
    int line = 0;  // of the barrier it waits at
    void *races = nullptr, *fake = nullptr;
};

struct Launch {
    void (*kernel)(void **);
    void **arguments;
    long long block = 0, threads = 0, current = 0;
    std::vector<Fiber> fibers;
    std::vector<void *> ran;  // what ThreadSanitizer knew them as
    std::map<int, std::pair<char *, std::size_t>> shared;
    Fiber scheduler;
    char *stacks = nullptr;
    char barriers[2] = {}, begun = 0, ended = 0;
    int turn = 0;
};
Launch *launch;
#ifdef CHECK_MEMORY
const void *scheduler_stack;
std::size_t scheduler_size;
#endif

char *mapped(std::size_t size) {
    void *p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) std::abort();
    return static_cast<char *>(p);
}

void to_scheduler([[maybe_unused]] bool for_good) {
    Fiber &own = launch->fibers[launch->current];
#ifdef CHECK_MEMORY
    __sanitizer_start_switch_fiber(for_good ? nullptr : &own.fake, scheduler_stack, scheduler_size);
#endif
    RACES(__tsan_switch_to_fiber(launch->scheduler.races, 1));
    change_stack(&own.top, launch->scheduler.top);
#ifdef CHECK_MEMORY
    __sanitizer_finish_switch_fiber(own.fake, nullptr, nullptr);
#endif
}

void to_fiber(long long thread) {
    Fiber &next = launch->fibers[launch->current = thread];
#ifdef CHECK_MEMORY
    __sanitizer_start_switch_fiber(&launch->scheduler.fake, launch->stacks + thread * STACK, STACK);
#endif
    RACES(__tsan_switch_to_fiber(next.races, 1));
    change_stack(&launch->scheduler.top, next.top);
#ifdef CHECK_MEMORY
    __sanitizer_finish_switch_fiber(launch->scheduler.fake, nullptr, nullptr);
#endif
}

void run_thread() {
#ifdef CHECK_MEMORY
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_size);
#endif
    RACES(__tsan_acquire(&launch->begun));
    launch->kernel(launch->arguments);
    RACES(__tsan_release(&launch->ended));
    launch->fibers[launch->current].done = true;
    to_scheduler(true);
    std::abort();
}

void prepare(long long thread) {
    Fiber &own = launch->fibers[thread] = Fiber{};
    void **top = reinterpret_cast<void **>(launch->stacks + (thread + 1) * STACK);
    top[-1] = nullptr;
    top[-2] = reinterpret_cast<void *>(run_thread);
    std::fill(top - 8, top - 2, nullptr);
    own.top = top - 8;
#ifdef CHECK_RACES
    own.races = __tsan_create_fiber(0);
    const std::string name =
        "block " + std::to_string(launch->block) + " thread " + std::to_string(thread);
    __tsan_set_fiber_name(own.races, name.c_str());
#endif
}

void release_block() {
    for (auto &[line, memory] : launch->shared) {
#ifdef CHECK_RACES
        munmap(memory.first, memory.second);
#else
        std::free(memory.first);
#endif
    }
    launch->shared.clear();
#ifdef CHECK_RACES
    for (Fiber &own : launch->fibers) launch->ran.push_back(own.races);
    munmap(launch->stacks, launch->threads * STACK);
    launch->stacks = nullptr;
#endif
}

const char *run_block(std::vector<long long> &order) {
    if (!launch->stacks) launch->stacks = mapped(launch->threads * STACK);
    RACES(__tsan_release(&launch->begun));
    for (long long t = 0; t < launch->threads; ++t) prepare(t);
    const char *problem = nullptr;
    for (bool running = true; running && !problem;) {
        for (long long t : order)
            if (!launch->fibers[t].done) to_fiber(t);
        launch->turn = 1 - launch->turn;
        const Fiber &first = launch->fibers[0];
        for (const Fiber &own : launch->fibers) {
            if (own.done != first.done) problem = "a barrier that some threads of the block never reach";
            if (!own.done && own.line != first.line) problem = "threads of a block wait at two barriers";
        }
        running = !first.done;
    }
    release_block();
    return problem;
}

}  // namespace

extern "C" {

long long fiber_block() { return launch->block; }
long long fiber_thread() { return launch->current; }
long long fiber_threads() { return launch->threads; }

void fiber_barrier(int line) {
    launch->fibers[launch->current].line = line;
    [[maybe_unused]] char *const barrier = &launch->barriers[launch->turn];
    RACES(__tsan_release(barrier));
    to_scheduler(false);
    RACES(__tsan_acquire(barrier));
}

void *fiber_shared(int line, std::size_t size) {
    auto &[memory, length] = launch->shared[line];
    if (!memory) {
        length = size;
#ifdef CHECK_RACES
        memory = mapped(size);
        for (std::size_t k = 0; k < size; ++k) reinterpret_cast<volatile char *>(memory)[k] = -1;
#else
        memory = static_cast<char *>(std::malloc(size));
        std::memset(memory, 0xff, size);
#endif
    }
    return memory;
}

// order: 0 forward, 1 backward, larger: shuffled, with that seed. A text is what went wrong.
const char *fiber_launch(void (*kernel)(void **), void **arguments, long long first_block,
                         long long blocks, long long threads, unsigned order) {
    Launch own;
    own.kernel = kernel, own.arguments = arguments, own.threads = threads;
    own.fibers.resize(threads);
    launch = &own;
    RACES(own.scheduler.races = __tsan_get_current_fiber());
    std::vector<long long> places(blocks), lanes(threads);
    std::iota(places.begin(), places.end(), first_block);
    std::iota(lanes.begin(), lanes.end(), 0);
    std::mt19937 random(order);
    const auto arrange = [&](std::vector<long long> &list) {
        if (order == 1) std::reverse(list.begin(), list.end());
        if (order > 1) std::shuffle(list.begin(), list.end(), random);
    };
    arrange(places);
    if (order == 1) arrange(lanes);
    const char *problem = nullptr;
    for (long long place : places) {
        own.block = place;
        if (order > 1) arrange(lanes);
        if ((problem = run_block(lanes))) break;
    }
    RACES(__tsan_acquire(&own.ended));
    RACES(for (void *fiber : own.ran) __tsan_destroy_fiber(fiber));
    if (own.stacks) munmap(own.stacks, threads * STACK);
    launch = nullptr;
    return problem;
}
}
