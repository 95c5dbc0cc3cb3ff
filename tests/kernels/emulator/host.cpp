// What the emulator's library exports. `kernels_under_test.h` is written by emulator.py: the sources, then the list of
// kernels.
#include "shim.h"

#include "kernels_under_test.h"

namespace {

const uint64_t* arguments;

template <class T>
T argument(int index) {
  T value;
  memcpy(&value, &arguments[index], sizeof value);  // of an int the low half
  return value;
}

template <class... P, size_t... I>
void call_with(void (*kernel)(P...), std::index_sequence<I...>) {
  kernel(argument<P>(I)...);
}

template <class... P>
void call(void (*kernel)(P...)) {
  call_with(kernel, std::index_sequence_for<P...>{});
}

// r: pointer that is only read; w: pointer; l: 64-bit integer; i: 32-bit integer.
template <class T>
struct Kind {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  static constexpr char letter = sizeof(T) == 8 ? 'l' : 'i';
};
template <class T>
struct Kind<T*> {
  static constexpr char letter = 'w';
};
template <class T>
struct Kind<const T*> {
  static constexpr char letter = 'r';
};

template <class... P>
std::string kinds_of(void (*)(P...)) {
  return {Kind<P>::letter...};
}

struct Entry {
  const char* name;
  int threads;  // at most: the kernel's launch bound
  void (*body)();
  std::string kinds;
};

#define EMULATED(name, threads) {#name, threads, [] { call(name); }, kinds_of(name)},
const Entry entries[] = {EMULATED_KERNELS};

const Entry* find(const char* name) {
  for (const Entry& entry : entries) {
    if (!strcmp(entry.name, name)) {
      return &entry;
    }
  }
  return nullptr;
}

std::vector<std::pair<unsigned, unsigned>> selected_blocks;

}  // namespace

extern "C" {

// Of the first kernel with this name, a letter a parameter; null if there is none.
const char* emulator_parameter_kinds(const char* name) {
  const Entry* entry = find(name);
  return entry ? entry->kinds.c_str() : nullptr;
}

const char* emulator_error() { return emulator::error.c_str(); }

void emulator_set_options(int schedule, int lazy_copies, int hardware_numerics, int fraction_bits, int products, int keep_f32) {
  emulator::options = {emulator::Schedule(schedule), lazy_copies != 0, hardware_numerics != 0, fraction_bits, products, keep_f32 != 0};
}

// The arrays that the next launches may touch, sorted by their begin.
void emulator_set_ranges(int count, const uint64_t* begin, const uint64_t* end, const int* writable) {
  emulator::ranges.clear();
  for (int i = 0; i < count; i++) {
    emulator::ranges.push_back({begin[i], end[i], writable[i] != 0});
  }
}

// Without it a kernel may touch any address: for callers that know none of the arrays.
void emulator_check_bounds(int on) { emulator::bounds_checked = on != 0; }

// Blocks (x, y) that launches run; none stands for the whole grid.
void emulator_select_blocks(int count, const uint32_t* xy) {
  selected_blocks.clear();
  for (int i = 0; i < count; i++) {
    selected_blocks.emplace_back(xy[2 * i], xy[2 * i + 1]);
  }
}

void emulator_statistics(uint64_t* three) { memcpy(three, &emulator::statistics, sizeof emulator::statistics); }

// Runs a grid, one block after the other. `args` has 64 bits a parameter. Returns 0, or 1 with a text in
// emulator_error.
int emulator_launch(const char* name, unsigned grid_x, unsigned grid_y, unsigned threads, unsigned shared_bytes, const uint64_t* args,
                    unsigned seed) {
  using namespace emulator;
  error.clear();
  failed = false;
  current = nullptr;
  statistics = {};
  const Entry* entry = find(name);
  if (!entry) {
    error = std::string("no kernel has the name ") + name;
    return 1;
  }
  if (grid_x == 0 || grid_y == 0 || grid_x > 0x7fffffffu || grid_y > 65535 || threads == 0 || threads % WARP || int(threads) > entry->threads) {
    error = "the launch's grid or number of threads is none that a device takes";
    return 1;
  }
  kernel_body = entry->body;
  arguments = args;
  thread_count = threads;
  block_extent = {threads, 1, 1};
  grid_extent = {grid_x, grid_y, 1};
  free(shared);
  emulator::shared_bytes = shared_bytes;
  shared = (unsigned char*)aligned_alloc(1024, (shared_bytes + 1024) / 1024 * 1024);
  words.assign((shared_bytes + 3) / 4, Word{});
  stored.clear();
  grow_fibers(threads);
  Random random(seed);
  auto run = [&](unsigned x, unsigned y) {
    block_index = {x, y, 0};
    begin_block();
    run_block(random, begin_epoch);
  };
  for (auto [x, y] : selected_blocks) {
    run(x, y);
  }
  for (unsigned y = 0; selected_blocks.empty() && y < grid_y && !failed; y++) {
    for (unsigned x = 0; x < grid_x && !failed; x++) {
      run(x, y);
    }
  }
  return failed;
}

}  // extern "C"
