// Threads of a block as fibers: one runs until it waits at a barrier or in a collective of its warp, then another does.
//
// A barrier opens when every thread of the block waits at the same line of source; a collective is carried out when all
// 32 lanes of the warp wait at the same line. Whatever else leaves nobody able to run is reported, with who waits
// where.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>
#if defined(__x86_64__) && !defined(EMULATOR_USES_UCONTEXT)
#define EMULATOR_SWITCHES_STACKS
#else
#include <ucontext.h>
#endif

namespace emulator {

constexpr int WARP = 32;
constexpr size_t STACK_BYTES = 64 * 1024;

enum class State { running, at_barrier, in_collective, done };

struct Copy {
  unsigned char* shared;
  const void* global;
  int bytes;
};

struct Fiber {
#if defined(EMULATOR_SWITCHES_STACKS)
  void* stack_pointer;
#else
  ucontext_t context;
#endif
  char* stack;
  State state;
  int line;                             // where it waits
  void (*collective)(Fiber* warp);      // what it waits for
  unsigned thread;
  uint32_t operands[6];                 // of a collective, and its results
  float values[4];
  int lane_mask;
  std::vector<std::vector<Copy>> copy_groups;
  std::vector<Copy> open_copies;
};

struct Extent {
  unsigned x, y, z;
};

enum class Schedule { forward, reverse, random };

struct Options {
  Schedule schedule = Schedule::forward;
  bool lazy_copies = false;      // copies happen when they are waited for, not when they are issued
  bool hardware_numerics = false;
  int fraction_bits = 25;        // of the aligned sum of a matrix instruction, below its largest term
  int products = 16;             // that one step of the matrix unit adds at once
  bool keep_f32 = false;         // an output that would be rounded to BF16 is stored as F32
};

struct Statistics {
  uint64_t matrix_instructions, barriers, switches;
};

inline Options options;
inline Statistics statistics;
inline Extent block_index, block_extent, grid_extent;
inline std::vector<Fiber> fibers;
inline Fiber* current = nullptr;
inline int thread_count = 0;
inline std::string error;
inline bool failed = false;
inline void (*kernel_body)() = nullptr;

#if defined(EMULATOR_SWITCHES_STACKS)
inline void* scheduler_stack_pointer;
// Saves the registers that a call preserves on this stack, and goes on with another.
extern "C" void emulator_switch(void** from, void* to);
asm(R"(
.text
.p2align 4
.globl emulator_switch
.type emulator_switch, @function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_switch, .-emulator_switch
)");
inline void to_scheduler() { emulator_switch(&current->stack_pointer, scheduler_stack_pointer); }
inline void to_fiber(Fiber& fiber) { emulator_switch(&scheduler_stack_pointer, fiber.stack_pointer); }
#else
inline ucontext_t scheduler_context;
inline void to_scheduler() { swapcontext(&current->context, &scheduler_context); }
inline void to_fiber(Fiber& fiber) { swapcontext(&scheduler_context, &fiber.context); }
#endif

inline void suspend() {
  statistics.switches++;
  to_scheduler();
}

// Records the first error. A thread that fails does not come back.
inline void fail(const std::string& what) {
  if (!failed) {
    char place[96];
    snprintf(place, sizeof place, " [block (%u, %u), thread %d]", block_index.x, block_index.y, current ? int(current->thread) : -1);
    error = what + place;
    failed = true;
  }
  while (current) {
    suspend();
  }
}

inline void fiber_entry() {
  kernel_body();
  current->state = State::done;
  for (;;) {
    suspend();
  }
}

inline void prepare(Fiber& fiber, unsigned thread) {
  fiber.state = State::running;
  fiber.thread = thread;
  fiber.copy_groups.clear();
  fiber.open_copies.clear();
#if defined(EMULATOR_SWITCHES_STACKS)
  void** top = (void**)(fiber.stack + STACK_BYTES);
  *--top = nullptr;
  *--top = (void*)fiber_entry;
  for (int i = 0; i < 6; i++) {
    *--top = nullptr;
  }
  fiber.stack_pointer = top;
#else
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = STACK_BYTES;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, fiber_entry, 0);
#endif
}

inline void grow_fibers(int count) {
  while (int(fibers.size()) < count) {
    fibers.emplace_back();
    fibers.back().stack = (char*)aligned_alloc(64, STACK_BYTES);
  }
}

inline void wait_at_barrier(int line) {
  current->state = State::at_barrier;
  current->line = line;
  suspend();
}

inline void wait_in_collective(void (*collective)(Fiber*), int line) {
  current->state = State::in_collective;
  current->collective = collective;
  current->line = line;
  suspend();
}

inline bool warp_is_complete(const Fiber* warp) {
  for (int lane = 0; lane < WARP; lane++) {
    if (warp[lane].state != State::in_collective || warp[lane].line != warp[0].line || warp[lane].collective != warp[0].collective) {
      return false;
    }
  }
  return true;
}

inline void report_standstill() {
  std::string what = "threads wait for each other (divergent barrier or collective):";
  const char* names[] = {"running", "at the barrier of line ", "in the collective of line ", "finished"};
  for (int i = 0, first = 0; i < thread_count; i = first) {
    const Fiber& fiber = fibers[i];
    while (first < thread_count && fibers[first].state == fiber.state && (fiber.state == State::done || fibers[first].line == fiber.line)) {
      first++;
    }
    if (what.size() < 300) {
      what += " threads " + std::to_string(i) + " to " + std::to_string(first - 1) + " " + names[int(fiber.state)];
      what += fiber.state == State::done ? ";" : std::to_string(fiber.line) + ";";
    }
  }
  fail(what);
}

// Opens the barrier if all threads are at it.
inline bool open_barrier(void (*on_barrier)()) {
  for (int i = 0; i < thread_count; i++) {
    if (fibers[i].state != State::at_barrier || fibers[i].line != fibers[0].line) {
      return false;
    }
  }
  for (int i = 0; i < thread_count; i++) {
    fibers[i].state = State::running;
  }
  statistics.barriers++;
  on_barrier();
  return true;
}

// Marsaglia's xorshift: the same numbers everywhere, and quick to compile.
struct Random {
  uint64_t state;
  explicit Random(unsigned seed) : state(seed * 0x9E3779B97F4A7C15ull + 1) {}
  unsigned below(unsigned limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return unsigned(state >> 11) % limit;
  }
};

// Runs one block to its end or to an error.
inline void run_block(Random& random, void (*on_barrier)()) {
  std::vector<int> order(thread_count);
  for (int i = 0; i < thread_count; i++) {
    prepare(fibers[i], i);
    order[i] = options.schedule == Schedule::reverse ? thread_count - 1 - i : i;
  }
  for (;;) {
    if (options.schedule == Schedule::random) {
      for (int i = thread_count - 1; i > 0; i--) {
        std::swap(order[i], order[random.below(i + 1)]);
      }
    }
    bool progress = false;
    for (int i : order) {
      if (fibers[i].state == State::running) {
        current = &fibers[i];
        to_fiber(fibers[i]);
        current = nullptr;
        progress = true;
        if (failed) {
          return;
        }
      }
      Fiber* warp = &fibers[i / WARP * WARP];
      if (fibers[i].state == State::in_collective && warp_is_complete(warp)) {
        warp[0].collective(warp);
        for (int lane = 0; lane < WARP; lane++) {
          warp[lane].state = State::running;
        }
        progress = true;
      }
    }
    progress = open_barrier(on_barrier) || progress;
    if (!progress) {
      for (int i = 0; i < thread_count; i++) {
        if (fibers[i].state != State::done) {
          report_standstill();
          return;
        }
      }
      return;
    }
  }
}

}  // namespace emulator
