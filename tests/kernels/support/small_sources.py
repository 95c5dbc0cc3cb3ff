"""Two CUDA sources of one small kernel each, which NVRTC compiles at once."""

PLAIN = 'extern "C" __global__ void plain(float* x) { x[threadIdx.x] += 1.0f; }'
OTHER = PLAIN.replace("1.0f", "2.0f")
