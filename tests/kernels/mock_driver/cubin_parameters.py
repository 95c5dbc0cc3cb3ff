"""The parameters of a kernel as its cubin states them: what the driver would copy, whatever Python thinks that it passes."""

from __future__ import annotations

import struct

#: A record of the section .nv.info.<kernel>: index, ordinal, offset in the parameter block, and the size from bit 18 on.
_PARAMETER_RECORD = 0x17
_HAS_PAYLOAD = 4


def parameter_sizes(cubin: bytes, kernel: str) -> tuple[int, ...]:
    """Return the bytes of each parameter, in their order; raises KeyError for a kernel that the cubin does not have."""
    information = _section(cubin, f".nv.info.{kernel}")
    found: dict[int, int] = {}
    position = 0
    while position < len(information):
        form, attribute, size = struct.unpack_from("<BBH", information, position)
        position += 4
        if form != _HAS_PAYLOAD:
            continue
        if attribute == _PARAMETER_RECORD:
            _index, ordinal, _offset, packed = struct.unpack_from("<IHHI", information, position)
            found[ordinal] = packed >> 18
        position += size
    return tuple(found[ordinal] for ordinal in sorted(found))


def _section(cubin: bytes, wanted: str) -> bytes:
    (headers,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, headers + index * size) for index in range(count)]
    table = sections[names][4]
    for name, _type, _flags, _address, offset, length, *_ in sections:
        if cubin[table + name : cubin.index(b"\0", table + name)].decode() == wanted:
            return cubin[offset : offset + length]
    raise KeyError(wanted)
