// Device primitives: every instruction that C++ has no words for, and every access to memory.
//
// Needs no header, so that NVRTC compiles it alone. Kernels touch global and shared memory, copies, conversions and
// matrix instructions only through this file: the tests put a CPU implementation of the same functions in its place,
// which checks each access. A function that a kernel does not call is not emitted, so instructions that a device lacks
// do no harm here.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE __device__ __forceinline__
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) u8 name[]

// ---- Global memory: read-only for the life of a kernel, except through the stores. ----

// 16 bytes that this device reads once: they shall not push others out of the L1 cache. Aligned to 16 bytes.
DEVICE uint4 load_16_bytes_once(const void* address) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address));
  return value;
}

// 16 bytes that other threads read too. Aligned to 16 bytes.
DEVICE uint4 load_16_bytes(const void* address) {
  return __ldg((const uint4*)address);
}

// Aligned to 8 bytes.
DEVICE uint2 load_8_bytes(const void* address) {
  return __ldg((const uint2*)address);
}

DEVICE u8 load_u8(const u8* address) {
  return __ldg(address);
}

DEVICE u16 load_u16(const u16* address) {
  return __ldg(address);
}

DEVICE u32 load_u32(const u32* address) {
  return __ldg(address);
}

DEVICE int load_i32(const int* address) {
  return __ldg(address);
}

DEVICE float load_f32(const float* address) {
  return __ldg(address);
}

DEVICE void store_u8(u8* address, u8 value) {
  *address = value;
}

DEVICE void store_u32(u32* address, u32 value) {
  *address = value;
}

DEVICE void store_f32(float* address, float value) {
  *address = value;
}

// ---- Shared memory. ----

// Aligned to 16 bytes.
DEVICE uint4 shared_load_16_bytes(const u8* address) {
  return *(const uint4*)address;
}

// Aligned to 16 bytes.
DEVICE float4 shared_load_f32x4(const float* address) {
  return *(const float4*)address;
}

DEVICE float shared_load_f32(const float* address) {
  return *address;
}

DEVICE void shared_store_f32(float* address, float value) {
  *address = value;
}

// ---- Copies from global to shared memory that run while the thread goes on (sm_80). ----

// Copies `bytes` (0 to 16) of global memory and fills the rest of 16 with zeros. Both addresses are aligned to 16
// bytes.
DEVICE void copy_16_bytes_async(u8* shared_address, const void* global_address, int bytes) {
  u32 destination = (u32)__cvta_generic_to_shared(shared_address);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(global_address), "r"(bytes) : "memory");
}

// Closes a group of copies: those that this thread issued since the group before it.
DEVICE void copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `GROUPS` of this thread's newest groups are still under way.
template <int GROUPS>
DEVICE void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

// ---- Conversions. ----

// Four bytes, chosen by the four hexadecimal digits of `selector` from the eight bytes of b:a.
DEVICE u32 byte_permute(u32 a, u32 b, u32 selector) {
  return __byte_perm(a, b, selector);
}

// Two BF16 products and sums, each rounded once (sm_80). Subnormal operands keep their value.
DEVICE u32 fma_bf16x2(u32 a, u32 b, u32 c) {
  u32 result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}

DEVICE float bf16_to_f32(u16 value) {
  return __uint_as_float((u32)value << 16);
}

// Rounds to nearest, ties to even (sm_80).
DEVICE u16 f32_to_bf16(float value) {
  u16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(value));
  return result;
}

// y[index] = value, rounded to BF16.
DEVICE void store_rounded_to_bf16(void* y, i64 index, float value) {
  ((u16*)y)[index] = f32_to_bf16(value);
}

// Four codes, the first in the lowest byte: rounded to nearest even, beyond +-448 to +-448 (sm_89).
DEVICE u32 f32x4_to_e4m3x4(float first, float second, float third, float fourth) {
  u16 low;
  u16 high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(second), "f"(first));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(fourth), "f"(third));
  return (u32)low | ((u32)high << 16);
}

// ---- Collectives of a warp: all 32 lanes call them together. ----

DEVICE float shuffle_xor_f32(float value, int lane_mask) {
  return __shfl_xor_sync(0xffffffffu, value, lane_mask);
}

// d[16, 8] += a[16, 16] b[16, 8], F32 sums of BF16 products (sm_80). With group = lane / 4 and member = lane % 4, a
// lane holds a0 and a1: columns 2 * member and the next one of rows group and group + 8; a2 and a3: the same, 8 columns
// further; b0 and b1: rows 2 * member and the next one of column group, and the same 8 rows further; d[0] and d[1]:
// columns 2 * member and the next one of row group; d[2] and d[3]: of row group + 8.
DEVICE void mma_bf16_m16n8k16(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// d[16, 8] += a[16, 32] b[32, 8] of e4m3 codes (sm_89). As above with four consecutive columns (rows of b) a register,
// from 4 * member on, and 16 further.
DEVICE void mma_e4m3_m16n8k32(float* d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
