"""CUDA kernels for quantized weights, compiled at run time with NVRTC. Knows nothing of contracts."""
