"""Weights that stay as they are stored: the modules that hold them and what multiplies with them."""
