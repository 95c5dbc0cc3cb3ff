"""FP8 codes to wider floats on the CPU: the reference formulas, the strips that are equal to them, and streams of whole checkpoints."""
