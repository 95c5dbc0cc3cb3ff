/* The specified order of w8a32, one element at a time, with the C library's fmaf: what the oracle's vectors must equal bit for bit. */
#include <math.h>

void fused_each(const float *a, const float *b, const float *c, float *result, int count) {
    for (int i = 0; i < count; i++) result[i] = fmaf(a[i], b[i], c[i]);
}

/* x [m, k], weight [n, k] as values, scales [n, blocks], bias [n] or null, y [m, n]; all contiguous. */
void linear(const float *x, const float *weight, const float *scales, const float *bias, float *y, int m, int n, int k) {
    int blocks = (k + 127) / 128;
    for (int row = 0; row < m; row++)
        for (int column = 0; column < n; column++) {
            float sum = 0;
            for (int block = 0; block < blocks; block++) {
                float part = 0;
                for (int i = block * 128; i < (block + 1) * 128 && i < k; i++)
                    part = fmaf(x[(long)row * k + i], weight[(long)column * k + i], part);
                sum = fmaf(part, scales[(long)column * blocks + block], sum);
            }
            y[(long)row * n + column] = bias ? sum + bias[column] : sum;
        }
}
