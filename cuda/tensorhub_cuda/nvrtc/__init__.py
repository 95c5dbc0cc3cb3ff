"""Kernels from source to cubin: compiled at run time and kept in a cache."""
