"""INT8 weights with one scale for each row: a contract of the producer `acme`, and its decoder."""
