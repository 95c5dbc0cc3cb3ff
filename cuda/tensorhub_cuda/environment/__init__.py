"""What CUDA kernels find on this machine."""
