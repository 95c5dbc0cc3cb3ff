"""Whole models of transformers, loaded through the decoder that the verdict names."""
