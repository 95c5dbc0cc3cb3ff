// Number formats from their definitions, and the sums of a matrix instruction. Nothing here knows how kernels convert.
#pragma once
#include <cmath>
#include <cstring>

#include "fibers.h"

namespace emulator {

inline float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

inline float value_of_bf16(uint16_t bits) { return float_of_bits((uint32_t)bits << 16); }

// To nearest, ties to even, at once from whatever precision `value` has.
inline uint16_t round_to_bf16(double value) {
  if (std::isnan(value)) {
    return 0x7fff;
  }
  if (value == 0 || std::isinf(value)) {
    return bits_of_float((float)value) >> 16;
  }
  int exponent = std::max(std::ilogb(value), -126);
  double rounded = std::ldexp(std::nearbyint(std::ldexp(value, 7 - exponent)), exponent - 7);
  return bits_of_float((float)rounded) >> 16;  // beyond the largest BF16 `rounded` is 2^128, which is infinity as a float
}

inline float value_of_e4m3(uint8_t code) {
  int exponent = (code >> 3) & 15;
  int mantissa = code & 7;
  float magnitude = exponent ? std::ldexp(1.f + mantissa / 8.f, exponent - 7) : std::ldexp(mantissa / 8.f, -6);
  if ((code & 0x7f) == 0x7f) {
    magnitude = NAN;
  }
  return code & 0x80 ? -magnitude : magnitude;
}

// To nearest, ties to the even code, beyond 448 to 448: by the list of all magnitudes.
inline uint8_t round_to_e4m3(float value) {
  uint8_t sign = std::signbit(value) ? 0x80 : 0;
  float magnitude = std::fabs(value);
  if (std::isnan(value)) {
    return 0x7f;
  }
  uint8_t below = 0;
  for (int step = 64; step; step /= 2) {
    if (below + step < 0x7f && value_of_e4m3(below + step) <= magnitude) {
      below += step;
    }
  }
  if (below == 0x7e) {
    return sign | below;
  }
  double middle = ((double)value_of_e4m3(below) + value_of_e4m3(below + 1)) / 2;
  bool up = magnitude > middle || (magnitude == middle && (below & 1));
  return sign | (uint8_t)(below + up);
}

struct E4m3Table {
  float values[256];
  E4m3Table() {
    for (int code = 0; code < 256; code++) {
      values[code] = value_of_e4m3(code);
    }
  }
};
inline const E4m3Table e4m3_table;

inline int exponent_of(double value) { return value == 0 ? -300 : std::ilogb(value); }

// sum + a . b as published models of matrix units have it: `options.products` at a time, each term aligned to the
// largest exponent (of operands, so a product may be twice it) and cut after `options.fraction_bits`, the sum cut to
// F32.
inline float hardware_sum(const float* a, const float* b, int stride, int count, float sum) {
  for (int first = 0; first < count; first += options.products) {
    int last = std::min(count, first + options.products);
    int largest = exponent_of(sum);
    double plain = sum;
    for (int k = first; k < last; k++) {
      float bk = b[k * stride];
      plain += (double)a[k] * bk;
      if (a[k] != 0 && bk != 0) {
        largest = std::max(largest, exponent_of(a[k]) + exponent_of(bk));
      }
    }
    if (!std::isfinite(plain)) {
      sum = (float)plain;
      continue;
    }
    if (largest < -250) {
      sum = 0;
      continue;
    }
    double unit = std::ldexp(1.0, options.fraction_bits - largest);
    double total = std::trunc(sum * unit);
    for (int k = first; k < last; k++) {
      total += std::trunc((double)a[k] * b[k * stride] * unit);
    }
    total /= unit;
    double last_place = std::ldexp(1.0, 23 - exponent_of(total));
    sum = total == 0 ? 0 : (float)(std::trunc(total * last_place) / last_place);
  }
  return sum;
}

// d[16, 8] += a[16, K] b[K, 8] of a warp: where operands lie is the PTX manual's text (see primitives.cuh). K is 16 for
// BF16, 32 for e4m3. Exact numerics: the sum has 53 bits and is rounded once.
template <int K>
void multiply_matrices(Fiber* warp) {
  constexpr int PER_REGISTER = K / 8;
  float a[16][K], b[K][8];
  auto unpack = [](uint32_t bits, int i) {
    return PER_REGISTER == 4 ? e4m3_table.values[(bits >> (8 * i)) & 0xff] : value_of_bf16((uint16_t)(bits >> (16 * i)));
  };
  for (int lane = 0; lane < WARP; lane++) {
    int group = lane / 4, member = lane % 4;
    for (int i = 0; i < PER_REGISTER; i++) {
      int k = member * PER_REGISTER + i;
      for (int r = 0; r < 4; r++) {
        a[group + (r & 1) * 8][k + (r >> 1) * (K / 2)] = unpack(warp[lane].operands[r], i);
      }
      for (int r = 0; r < 2; r++) {
        b[k + r * (K / 2)][group] = unpack(warp[lane].operands[4 + r], i);
      }
    }
  }
  double exact[16][8] = {};
  if (!options.hardware_numerics) {
    for (int row = 0; row < 16; row++) {
      for (int k = 0; k < K; k++) {
        for (int column = 0; column < 8; column++) {
          exact[row][column] += (double)a[row][k] * b[k][column];
        }
      }
    }
  }
  for (int lane = 0; lane < WARP; lane++) {
    for (int i = 0; i < 4; i++) {
      int row = lane / 4 + (i >> 1) * 8, column = 2 * (lane % 4) + (i & 1);
      float& value = warp[lane].values[i];
      value = options.hardware_numerics ? hardware_sum(a[row], &b[0][column], 8, K, value) : (float)(value + exact[row][column]);
    }
  }
  statistics.matrix_instructions++;
}

}  // namespace emulator
