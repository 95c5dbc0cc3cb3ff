"""The decoders that ship with tensorhub-contracts, registered through entry points like anyone's."""
