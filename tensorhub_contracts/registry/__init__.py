"""Which layouts exist: contracts, their names, shapes and digests."""
