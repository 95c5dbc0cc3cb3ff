"""Decides on the headers that the fast path declines, and lists everything that is wrong with them."""

from __future__ import annotations

from typing import Any, cast

from tensorhub_contracts.checkpoints.file_kinds import recognize
from tensorhub_contracts.checkpoints.geometry import BITS, Dtype, TensorEntry, byte_length, write_shape
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.strict_json import Duplicates, JsonFault, is_text, parse_json

_FIELDS = ("dtype", "shape", "data_offsets")
_REWRITE = "Write the file again with the safetensors library, or download it again."
_DOWNLOAD = "Download the file again and compare its size with the one that its source states."


def diagnose_header(raw: bytes, *, file_size: int, name: str) -> tuple[dict[str, TensorEntry], dict[str, str]]:
    """Return entries and metadata of a header, or raise `Refusal` with every violation of the file."""
    return _Diagnosis(raw, file_size, name).run()


class _Diagnosis:
    """One file's header under examination; `violations` collects what is wrong."""

    def __init__(self, raw: bytes, file_size: int, name: str) -> None:
        self.raw = raw
        self.file_size = file_size
        self.payload_size = file_size - 8 - len(raw)
        self.name = name
        self.violations: list[Violation] = []

    def refuse(self, code: str, obj: str, expected: str, found: str, remedy: str = _REWRITE) -> None:
        shown = obj if is_text(obj) else ascii(obj)
        self.violations.append(
            Violation(code=code, object=shown or "(empty name)", expected=expected, found=found, remedy=remedy, shard=self.name)
        )

    def run(self) -> tuple[dict[str, TensorEntry], dict[str, str]]:
        header = self._parse()
        entries: dict[str, TensorEntry] = {}
        metadata: dict[str, str] = {}
        if header is not None:
            if isinstance(header, Duplicates):
                for key in header.repeated:
                    self.refuse("header-duplicate-key", key, "each name once", "the name more than once")
            for key, value in header.items():
                if key == "__metadata__":
                    metadata = self._metadata(value)
                elif (entry := self._entry(key, value)) is not None:
                    entries[key] = entry
            if not self.violations:
                self._offsets(entries)
        if self.violations:
            raise Refusal(self.violations)
        return entries, metadata

    def _parse(self) -> dict[str, Any] | None:
        if self.raw[:1] != b"{":
            kind = recognize(self.raw)
            found = f"{bytes(self.raw[:8])!r}" + (f": {kind.words}" if kind else "")
            self.refuse("header-json", self.name, "a JSON object that begins with '{'", found, kind.remedy if kind else _REWRITE)
            return None
        try:
            header = parse_json(self.raw)
        except JsonFault as fault:
            self.refuse("header-json", self.name, "strict UTF-8 JSON", str(fault))
            return None
        return cast("dict[str, Any]", header)

    def _metadata(self, value: Any) -> dict[str, str]:
        """`__metadata__` is absent, null, or an object of strings."""
        if value is None:
            return {}
        if type(value) not in (dict, Duplicates):
            self.refuse("header-metadata", "__metadata__", "an object of strings", _kind(value))
            return {}
        if value and set(value) <= {*_FIELDS} and any(type(each) is not str for each in value.values()):
            self.refuse("header-metadata", "__metadata__", "an object of strings: the name is reserved", "a tensor of that name")
            return {}
        if isinstance(value, Duplicates):
            for key in value.repeated:
                self.refuse("header-duplicate-key", f"__metadata__.{key}", "each key once", "the key more than once")
        for key, each in value.items():
            if type(each) is not str:
                self.refuse("header-metadata", f"__metadata__.{key}", "a string", _kind(each))
            elif not is_text(key) or not is_text(each):
                self.refuse("header-json", f"__metadata__.{key}", "text", "a lone surrogate, which is not a character")
        return dict(value)

    def _entry(self, name: str, value: Any) -> TensorEntry | None:
        """An entry has exactly a dtype, a shape and two offsets; a field that we do not know might change the meaning."""
        before = len(self.violations)
        if not is_text(name):
            self.refuse("header-json", name, "text", "a lone surrogate, which is not a character")
        if type(value) not in (dict, Duplicates):
            self.refuse("header-entry", name, "an object with dtype, shape and data_offsets", _kind(value))
            return None
        if isinstance(value, Duplicates):
            for key in value.repeated:
                self.refuse("header-duplicate-key", f"{name}: {key}", "each field once", "the field more than once")
        for missing in (key for key in _FIELDS if key not in value):
            self.refuse("header-entry", name, "the fields dtype, shape and data_offsets", f"no {missing}")
        for extra in (key for key in value if key not in _FIELDS):
            self.refuse("header-entry", name, "the fields dtype, shape and data_offsets and no other", f"the field {extra!r}")
        dtype, shape, offsets = (value.get(key) for key in _FIELDS)
        if "dtype" in value and (type(dtype) is not str or dtype not in BITS):
            self.refuse("dtype-unknown", name, "a dtype of safetensors 0.8, in capitals", _kind(dtype))
        if "shape" in value and not _sizes(shape):
            self.refuse("header-entry", name, "a shape of whole numbers from 0 to 2^64 - 1", _kind(shape))
        if "data_offsets" in value and not (_sizes(offsets) and len(offsets) == 2):
            self.refuse("header-entry", name, "two offsets, whole numbers from 0 to 2^64 - 1", _kind(offsets))
        if len(self.violations) > before:
            return None
        entry = TensorEntry(cast("Dtype", dtype), tuple(cast("list[int]", shape)), (offsets[0], offsets[1]))
        return entry if self._span(name, entry) else None

    def _span(self, name: str, entry: TensorEntry) -> bool:
        begin, end = entry.data_offsets
        if end < begin:
            self.refuse("offsets-size", name, "an end that is not before the begin", f"[{begin}, {end}]")
            return False
        length = byte_length(entry.dtype, entry.shape)
        geometry = f"{entry.dtype} {write_shape(entry.shape)}"
        if length is None:
            self.refuse("shape-overflow", name, "a size in whole bytes that fits in 64 bits", geometry)
            return False
        if end - begin != length:
            self.refuse("offsets-size", name, f"{length:,} bytes for {geometry}", f"{end - begin:,} bytes at [{begin}, {end}]")
            return False
        return True

    def _offsets(self, entries: dict[str, TensorEntry]) -> None:
        """The tensors, in the order of their offsets, fill the payload from its first byte to its last."""
        position, previous = 0, "the header"
        ordered = sorted(entries.items(), key=lambda item: item[1].data_offsets)
        beyond = next(((name, entry) for name, entry in ordered if entry.data_offsets[1] > self.payload_size), None)
        for name, entry in ordered:
            begin, end = entry.data_offsets
            if begin < position:
                self.refuse("offsets-overlap", name, f"a begin at {position}, where {previous} ends", f"[{begin}, {end}]")
            elif begin > position:
                self.refuse("offsets-hole", name, f"a begin at {position}, where {previous} ends", f"[{begin}, {end}]")
            position, previous = max(position, end), name
        if beyond is not None:
            needed = 8 + len(self.raw) + position
            found = f"{self.file_size:,} bytes: {beyond[0]} ends {beyond[1].data_offsets[1] - self.payload_size:,} bytes beyond"
            self.refuse("file-truncated", self.name, f"{needed:,} bytes", f"{found} the end of the file", _DOWNLOAD)
        elif position < self.payload_size:
            needed = 8 + len(self.raw) + position
            found = f"{self.file_size:,} bytes, {self.payload_size - position:,} more than the header describes"
            self.refuse("file-trailing-bytes", self.name, f"{needed:,} bytes", found, _DOWNLOAD)


def _sizes(value: Any) -> bool:
    return type(value) is list and all(type(each) is int and 0 <= each < 2**64 for each in value)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    text = ascii(value)
    return text if len(text) <= 80 else text[:77] + "..."
