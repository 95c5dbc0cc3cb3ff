"""What an inspection remarks beside its verdict: lists that a configuration holds, and what most units have."""
