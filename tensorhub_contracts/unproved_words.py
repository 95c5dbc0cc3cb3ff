"""What headers cannot show, in words: for reports, pages and the registry's check."""

from __future__ import annotations

from typing import Final

#: What headers cannot show, by the word that contracts use for it.
UNPROVED: Final = {
    "values": "the values: scales that are zero, negative or not finite, and NaN codes, are seen only when bytes are read",
    "scale-direction": "the direction of the scale: that it multiplies is part of the contract, not of the headers",
    "grid-orientation": "the orientation of a scale grid with as many blocks down as across: it has the same shape transposed",
    "member-origins": "where members begin inside a fused weight: the contract counts blocks from row 0 of the stored tensor",
    "no-scale-was-removed": "that no scale was lost: in this contract the absence of scales is the identity",
    "nibble-order": "which of two packed elements lies in the low nibble",
    "swizzle": "the order of the swizzled scales",
}
