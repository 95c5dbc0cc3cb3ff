"""Makes text from a file safe to show: names of tensors and files may hold what drives a terminal or is no text at all."""

from __future__ import annotations


def printable(text: str) -> str:
    """Spell out control characters, directions and lone surrogates, as Python would in a string."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
