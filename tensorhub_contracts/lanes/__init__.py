"""What an image can execute: derived from the decoders that are installed, and written as a record."""
