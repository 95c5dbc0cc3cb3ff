/* The order of w8a32 as a scalar loop: part = fma(x, w, part) within a block of 128, k ascending; sum = fma(part, scale, sum). */
#include <math.h>
#include <stdint.h>

void scalar_order(const float* x, const float* weight, const float* scale, const float* bias, float* y, int64_t m, int64_t n, int64_t k) {
  int64_t blocks = (k + 127) / 128;
  for (int64_t row = 0; row < m; row++) {
    for (int64_t column = 0; column < n; column++) {
      float sum = 0;
      for (int64_t block = 0; block < blocks; block++) {
        float part = 0;
        for (int64_t i = block * 128; i < k && i < block * 128 + 128; i++) {
          part = fmaf(x[row * k + i], weight[column * k + i], part);
        }
        sum = fmaf(part, scale[column * blocks + block], sum);
      }
      y[row * n + column] = bias ? sum + bias[column] : sum;
    }
  }
}
