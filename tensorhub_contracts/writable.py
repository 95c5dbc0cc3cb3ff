"""Text that can be written as UTF-8: names of files and messages of plugins may hold lone surrogates, which cannot."""

from __future__ import annotations


def writable(text: str) -> str:
    """Spell out what UTF-8 cannot hold, as Python would in a string; text that it can hold is left as it is."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
