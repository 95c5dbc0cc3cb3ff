"""What is judged of a checkpoint as a whole, beside its units."""
