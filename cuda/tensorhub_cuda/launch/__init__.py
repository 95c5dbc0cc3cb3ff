"""Kernels on a device: chosen, loaded, given their operands and launched."""
