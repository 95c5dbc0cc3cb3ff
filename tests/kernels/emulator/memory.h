// Every access of a kernel to global and shared memory, checked.
//
// Global: within an array of the launch (rows of a strided array one by one, so padding is out of bounds), aligned,
// stores only to arrays that the kernel may write, and no place stored twice. Shared: within the block's bytes,
// aligned, nothing read that nothing wrote, no copy read before it was waited for, and between two barriers no thread
// touches what another one wrote, nor writes what another one read. The last rule finds a missing barrier whatever the
// schedule. Shared memory also starts poisoned, as do places that a copy is going to fill.
#pragma once
#include <cstring>
#include <unordered_set>

#include "fibers.h"

namespace emulator {

struct Range {
  uintptr_t begin, end;
  bool writable;
};

inline std::vector<Range> ranges;  // sorted, apart from each other
inline bool bounds_checked = true;
inline std::unordered_set<uintptr_t> stored;

inline void check_global(const void* address, size_t bytes, bool store) {
  uintptr_t begin = (uintptr_t)address;
  if (begin % bytes) {
    fail("misaligned global access");
  }
  if (!bounds_checked) {
    return;
  }
  auto after = std::upper_bound(ranges.begin(), ranges.end(), begin, [](uintptr_t at, const Range& range) { return at < range.begin; });
  if (after == ranges.begin() || begin + bytes > (after - 1)->end) {
    fail(store ? "global store out of bounds" : "global load out of bounds");
  }
  if (store && !(after - 1)->writable) {
    fail("global store to an array that is only read");
  }
  if (store && !stored.insert(begin).second) {
    fail("global store to a place that was stored before");
  }
}

template <class T>
T load_global(const void* address) {
  check_global(address, sizeof(T), false);
  T value;
  memcpy(&value, address, sizeof value);
  return value;
}

template <class T>
void store_global(void* address, T value) {
  check_global(address, sizeof(T), true);
  memcpy(address, &value, sizeof value);
}

// ---- Shared memory. Epochs are counted by barriers, on and on, so that a block's begin makes older marks void. ----

constexpr int SEVERAL = -2;
constexpr unsigned char POISON = 0xFF;  // as floats and as BF16: NaN

struct Word {
  uint64_t write_epoch, read_epoch;
  int writer, reader;
  int pending;  // copies under way into it
};

inline unsigned char* shared = nullptr;
inline size_t shared_bytes = 0;
inline std::vector<Word> words;
inline uint64_t epoch = 1, first_epoch_of_block = 1;

inline void begin_epoch() { epoch++; }

inline void begin_block() {
  begin_epoch();
  first_epoch_of_block = epoch;
  memset(shared, POISON, shared_bytes);
  for (Word& word : words) {
    word.pending = 0;
  }
}

inline size_t check_shared(const void* address, size_t bytes) {
  const unsigned char* begin = (const unsigned char*)address;
  if ((uintptr_t)begin % bytes) {
    fail("misaligned shared access");
  }
  if (begin < shared || begin + bytes > shared + shared_bytes) {
    fail("shared access out of bounds");
  }
  return (begin - shared) / 4;
}

inline void mark_read(const void* address, size_t bytes) {
  size_t first = check_shared(address, bytes);
  int thread = current->thread;
  for (size_t i = first; i < first + bytes / 4; i++) {
    Word& word = words[i];
    if (word.pending) {
      fail("shared memory read before its copy was waited for");
    }
    if (word.write_epoch < first_epoch_of_block) {
      fail("shared memory read that nothing wrote");
    }
    if (word.write_epoch == epoch && word.writer != thread) {
      fail("race: shared memory read that another thread wrote since the last barrier");
    }
    word.reader = word.read_epoch == epoch && word.reader != thread ? SEVERAL : thread;
    word.read_epoch = epoch;
  }
}

inline void mark_write(void* address, size_t bytes) {
  size_t first = check_shared(address, bytes);
  int thread = current->thread;
  for (size_t i = first; i < first + bytes / 4; i++) {
    Word& word = words[i];
    if (word.pending) {
      fail("shared memory written while a copy into it is under way");
    }
    if (word.write_epoch == epoch && word.writer != thread) {
      fail("race: shared memory written by two threads since the last barrier");
    }
    if (word.read_epoch == epoch && word.reader != thread) {
      fail("race: shared memory written that another thread read since the last barrier");
    }
    word.writer = thread;
    word.write_epoch = epoch;
  }
}

template <class T>
T load_shared(const void* address) {
  mark_read(address, sizeof(T));
  T value;
  memcpy(&value, address, sizeof value);
  return value;
}

template <class T>
void store_shared(void* address, T value) {
  mark_write(address, sizeof(T));
  memcpy(address, &value, sizeof value);
}

// ---- Asynchronous copies. ----

inline void carry_out(const Copy& copy) {
  memset(copy.shared, 0, 16);
  memcpy(copy.shared, copy.global, copy.bytes);
}

inline void issue_copy(unsigned char* to, const void* from, int bytes) {
  if (bytes) {
    check_global(from, 16, false);
  } else if ((uintptr_t)from % 16) {
    fail("misaligned global access");
  }
  mark_write(to, 16);
  for (size_t i = 0; i < 4; i++) {
    words[(to - shared) / 4 + i].pending++;
  }
  Copy copy{to, from, bytes};
  if (options.lazy_copies) {
    memset(to, POISON, 16);
  } else {
    carry_out(copy);
  }
  current->open_copies.push_back(copy);
}

inline void close_copy_group() {
  current->copy_groups.push_back(std::move(current->open_copies));
  current->open_copies.clear();
}

inline void wait_for_copies(size_t groups_left) {
  auto& groups = current->copy_groups;
  while (groups.size() > groups_left) {
    for (const Copy& copy : groups.front()) {
      if (options.lazy_copies) {
        carry_out(copy);
      }
      for (size_t i = 0; i < 4; i++) {
        Word& word = words[(copy.shared - shared) / 4 + i];
        word.pending--;
        word.writer = current->thread;
        word.write_epoch = epoch;  // other threads see it after the next barrier
      }
    }
    groups.erase(groups.begin());
  }
}

}  // namespace emulator
