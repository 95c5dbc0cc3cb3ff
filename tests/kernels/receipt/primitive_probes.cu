// One kernel for each device primitive whose result can be compared bit for bit with a table. It follows primitives.cuh and e4m3.cuh in one
// compile unit, is no part of the product, and is the same source for the emulator. One thread block of 256 threads, unless it says so.

// codes[256] to F32 and, four at a time, to BF16.
KERNEL(256) probe_e4m3(const u8* codes, float* as_f32, u32* as_bf16_pairs) {
  const int thread = threadIdx.x;
  store_f32(as_f32 + thread, e4m3_to_f32(load_u8(codes + thread)));
  if (thread < 64) {
    u32 first_pair;
    u32 second_pair;
    e4m3x4_to_bf16x4((u32)load_i32((const int*)codes + thread), first_pair, second_pair);
    store_u32(as_bf16_pairs + 2 * thread, first_pair);
    store_u32(as_bf16_pairs + 2 * thread + 1, second_pair);
  }
}

// F32 to BF16, `count` of them.
KERNEL(256) probe_f32_to_bf16(const float* values, void* rounded, int count) {
  for (int i = threadIdx.x; i < count; i += 256) {
    store_rounded_to_bf16(rounded, i, load_f32(values + i));
  }
}

// F32 to E4M3, four at a time; `count` is a multiple of 4. sm_89.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
KERNEL(256) probe_f32_to_e4m3(const float* values, u32* codes, int count) {
  for (int i = threadIdx.x; i < count / 4; i += 256) {
    const float* four = values + 4 * i;
    store_u32(codes + i, f32x4_to_e4m3x4(load_f32(four), load_f32(four + 1), load_f32(four + 2), load_f32(four + 3)));
  }
}
#endif

// d[16, 8] = c[16, 8] + a[16, 16] b[8, 16]^T, one warp. BF16 operands, two a word.
KERNEL(32) probe_mma_bf16(const int* a, const int* b, const float* c, float* d) {
  const int group = threadIdx.x >> 2;
  const int member = threadIdx.x & 3;
  const int* a_low = a + group * 8 + member;
  const int* a_high = a_low + 64;
  const int* b_column = b + group * 8 + member;
  float sums[4];
  for (int i = 0; i < 4; i++) {
    sums[i] = load_f32(c + (group + (i >> 1) * 8) * 8 + 2 * member + (i & 1));
  }
  mma_bf16_m16n8k16(sums, load_i32(a_low), load_i32(a_high), load_i32(a_low + 4), load_i32(a_high + 4), load_i32(b_column),
                    load_i32(b_column + 4));
  for (int i = 0; i < 4; i++) {
    store_f32(d + (group + (i >> 1) * 8) * 8 + 2 * member + (i & 1), sums[i]);
  }
}

// d[16, 8] = c[16, 8] + a[16, 32] b[8, 32]^T, one warp. E4M3 operands, four a word. sm_89.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
KERNEL(32) probe_mma_e4m3(const int* a, const int* b, const float* c, float* d) {
  const int group = threadIdx.x >> 2;
  const int member = threadIdx.x & 3;
  const int* a_low = a + group * 8 + member;
  const int* a_high = a_low + 64;
  const int* b_column = b + group * 8 + member;
  float sums[4];
  for (int i = 0; i < 4; i++) {
    sums[i] = load_f32(c + (group + (i >> 1) * 8) * 8 + 2 * member + (i & 1));
  }
  mma_e4m3_m16n8k32(sums, load_i32(a_low), load_i32(a_high), load_i32(a_low + 4), load_i32(a_high + 4), load_i32(b_column),
                    load_i32(b_column + 4));
  for (int i = 0; i < 4; i++) {
    store_f32(d + (group + (i >> 1) * 8) * 8 + 2 * member + (i & 1), sums[i]);
  }
}
#endif

// out[lane] = in[lane ^ mask] for one warp.
KERNEL(32) probe_shuffle(const float* in, float* out, int mask) {
  store_f32(out + threadIdx.x, shuffle_xor_f32(load_f32(in + threadIdx.x), mask));
}

// 17 copies of 0 to 16 bytes into shared memory, the rest of each 16 filled with zeros, in two groups that are waited for in turn.
KERNEL(32) probe_async_copy(const u8* in, u32* out) {
  DYNAMIC_SHARED(shared);
  const int thread = threadIdx.x;
  if (thread < 9) {
    copy_16_bytes_async(shared + 16 * thread, in + 16 * thread, thread);
  }
  copy_commit();
  if (thread >= 9 && thread < 17) {
    copy_16_bytes_async(shared + 16 * thread, in + 16 * thread, thread);
  }
  copy_commit();
  copy_wait<1>();
  copy_wait<0>();
  __syncthreads();
  if (thread < 17) {
    const uint4 copied = shared_load_16_bytes(shared + 16 * thread);
    store_u32(out + 4 * thread, copied.x);
    store_u32(out + 4 * thread + 1, copied.y);
    store_u32(out + 4 * thread + 2, copied.z);
    store_u32(out + 4 * thread + 3, copied.w);
  }
}
