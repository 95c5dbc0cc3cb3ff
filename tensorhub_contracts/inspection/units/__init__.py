"""Quantized tensors with their sidecars: found by name, and judged one kind at a time."""
