// Where the threads of a team run: each on the CPUs that it is kept to while it works for a plan.
#pragma once
#ifdef __linux__
#include <sched.h>
#endif

#include <vector>

namespace heomdask {

// CPUs of each thread of a team; none: where the system likes.
using Places = std::vector<std::vector<int>>;

#ifdef __linux__

// Keeps a thread of a team to its place. The first of them is a thread of the caller's, which gets
// its affinity back; the others stay, so that nobody wakes them elsewhere, until a team without
// places needs them. A place that cannot be had, since a batch system has taken its CPUs away or
// they are more than a mask has room for, is no error: the thread stays as it is.
class Placed {
  public:
    Placed(const Places &places, int thread) : first_(thread == 0) {
        if (places.empty()) {
            release();
        } else if (kept() || sched_getaffinity(0, sizeof(cpu_set_t), &before()) == 0) {
            cpu_set_t own;
            CPU_ZERO(&own);
            for (int cpu : places[thread])
                CPU_SET(cpu, &own);
            kept() |= sched_setaffinity(0, sizeof own, &own) == 0;
        }
    }
    ~Placed() {
        if (first_)
            release();
    }
    Placed(const Placed &) = delete;
    Placed &operator=(const Placed &) = delete;

  private:
    static bool &kept() {
        thread_local bool value = false;
        return value;
    }
    static cpu_set_t &before() {
        thread_local cpu_set_t value;
        return value;
    }
    static void release() {
        if (kept())
            sched_setaffinity(0, sizeof(cpu_set_t), &before());
        kept() = false;
    }
    bool first_;
};

// The CPU that the calling thread runs on.
inline int current_cpu() { return sched_getcpu(); }

#else

struct Placed {
    Placed(const Places &, int) {}
};
inline int current_cpu() { return -1; }

#endif

} // namespace heomdask
