"""The version of this release, where whatever writes it into a record can import it."""

__version__ = "0.1.0"
