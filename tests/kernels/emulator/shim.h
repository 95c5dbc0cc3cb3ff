// The CPU side of primitives.cuh: the same functions, checked. Kernel sources are compiled after it, unchanged.
#pragma once
#include "memory.h"
#include "numbers.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct uint2 {
  u32 x, y;
};
struct uint4 {
  u32 x, y, z, w;
};
struct float4 {
  float x, y, z, w;
};

#define DEVICE static inline
#define KERNEL(threads) static void
#define DYNAMIC_SHARED(name) u8* name = emulator::shared
#define LINE int line = __builtin_LINE()

struct ThreadIndex {
  struct {
    operator unsigned() const { return emulator::current->thread; }
  } x;
};
static ThreadIndex threadIdx;
#define blockIdx emulator::block_index
#define blockDim emulator::block_extent
#define gridDim emulator::grid_extent

using std::min;

DEVICE void __syncthreads(LINE) { emulator::wait_at_barrier(line); }

DEVICE float __uint_as_float(u32 bits) { return emulator::float_of_bits(bits); }
DEVICE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float __fadd_rn(float a, float b) { return a + b; }
DEVICE float __fmul_rn(float a, float b) { return a * b; }
DEVICE float __fdiv_rn(float a, float b) { return a / b; }

DEVICE uint4 load_16_bytes_once(const void* address) { return emulator::load_global<uint4>(address); }
DEVICE uint4 load_16_bytes(const void* address) { return emulator::load_global<uint4>(address); }
DEVICE uint2 load_8_bytes(const void* address) { return emulator::load_global<uint2>(address); }
DEVICE u8 load_u8(const u8* address) { return emulator::load_global<u8>(address); }
DEVICE u16 load_u16(const u16* address) { return emulator::load_global<u16>(address); }
DEVICE int load_i32(const int* address) { return emulator::load_global<int>(address); }
DEVICE float load_f32(const float* address) { return emulator::load_global<float>(address); }
DEVICE void store_u8(u8* address, u8 value) { emulator::store_global(address, value); }
DEVICE void store_u32(u32* address, u32 value) { emulator::store_global(address, value); }
DEVICE void store_f32(float* address, float value) { emulator::store_global(address, value); }

DEVICE uint4 shared_load_16_bytes(const u8* address) { return emulator::load_shared<uint4>(address); }
DEVICE float4 shared_load_f32x4(const float* address) { return emulator::load_shared<float4>(address); }
DEVICE float shared_load_f32(const float* address) { return emulator::load_shared<float>(address); }
DEVICE void shared_store_f32(float* address, float value) { emulator::store_shared(address, value); }

DEVICE void copy_16_bytes_async(u8* shared_address, const void* global_address, int bytes) {
  emulator::issue_copy(shared_address, global_address, bytes);
}
DEVICE void copy_commit() { emulator::close_copy_group(); }
template <int GROUPS>
DEVICE void copy_wait() {
  emulator::wait_for_copies(GROUPS);
}

DEVICE u32 byte_permute(u32 a, u32 b, u32 selector) {
  u64 bytes = a | (u64)b << 32;
  u32 result = 0;
  for (int i = 0; i < 4; i++) {
    result |= (u32)(bytes >> (8 * ((selector >> (4 * i)) & 7)) & 0xff) << (8 * i);
  }
  return result;
}
DEVICE float bf16_to_f32(u16 value) { return emulator::value_of_bf16(value); }
DEVICE u16 f32_to_bf16(float value) { return emulator::round_to_bf16(value); }
DEVICE u32 fma_bf16x2(u32 a, u32 b, u32 c) {
  u32 result = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    double product = (double)bf16_to_f32((u16)(a >> shift)) * bf16_to_f32((u16)(b >> shift));
    result |= (u32)emulator::round_to_bf16(product + bf16_to_f32((u16)(c >> shift))) << shift;
  }
  return result;
}
DEVICE void store_rounded_to_bf16(void* y, i64 index, float value) {
  if (emulator::options.keep_f32) {
    emulator::store_global((float*)y + index, value);
  } else {
    emulator::store_global((u16*)y + index, f32_to_bf16(value));
  }
}
DEVICE u32 f32x4_to_e4m3x4(float first, float second, float third, float fourth) {
  using emulator::round_to_e4m3;
  return round_to_e4m3(first) | (u32)round_to_e4m3(second) << 8 | (u32)round_to_e4m3(third) << 16 | (u32)round_to_e4m3(fourth) << 24;
}

DEVICE void exchange_lanes(emulator::Fiber* warp) {
  float before[emulator::WARP];
  for (int lane = 0; lane < emulator::WARP; lane++) {
    before[lane] = warp[lane].values[0];
  }
  for (int lane = 0; lane < emulator::WARP; lane++) {
    warp[lane].values[0] = before[lane ^ warp[lane].lane_mask];
  }
}
DEVICE float shuffle_xor_f32(float value, int lane_mask, LINE) {
  emulator::current->values[0] = value;
  emulator::current->lane_mask = lane_mask;
  emulator::wait_in_collective(exchange_lanes, line);
  return emulator::current->values[0];
}
template <int K>
DEVICE void matrix_instruction(float* d, const u32 (&operands)[6], int line) {
  memcpy(emulator::current->operands, operands, sizeof operands);
  memcpy(emulator::current->values, d, 16);
  emulator::wait_in_collective(emulator::multiply_matrices<K>, line);
  memcpy(d, emulator::current->values, 16);
}
DEVICE void mma_bf16_m16n8k16(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, LINE) {
  matrix_instruction<16>(d, {a0, a1, a2, a3, b0, b1}, line);
}
DEVICE void mma_e4m3_m16n8k32(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, LINE) {
  matrix_instruction<32>(d, {a0, a1, a2, a3, b0, b1}, line);
}
