"""Decides on the headers that the fast path declines, and lists everything that is wrong with them."""

from __future__ import annotations

from typing import Any, cast

from tensorhub_contracts.checkpoints.file_kinds import recognize
from tensorhub_contracts.checkpoints.geometry import BITS, Dtype, TensorEntry, are_sizes, byte_length, write_shape
from tensorhub_contracts.checkpoints.json_members import LONGEST_VALUE, LongValueError, Members
from tensorhub_contracts.checkpoints.paths import last_name
from tensorhub_contracts.errors import MOST_CHARACTERS, MOST_VIOLATIONS, Refusal, Violation, shown
from tensorhub_contracts.strict_json import Duplicates, JsonFault, brief, is_text, object_of

_FIELDS = ("dtype", "shape", "data_offsets")

#: More fields than any entry has that somebody wrote.
_MOST_FIELDS = 100

_REWRITE = "Write the file again with the safetensors library, or download it again."
_DOWNLOAD = "Download the file again and compare its size with the one that its source states."


Decoded = tuple[dict[str, TensorEntry], dict[str, str]]


def diagnose_header(raw: bytes, *, file_size: int, name: str, decoded: Decoded | None = None) -> Decoded:
    """Return entries and metadata of a header, or raise `Refusal` with every violation of the file.

    `decoded` is what its text was found to say, if that is certain: then where the tensors lie is judged alone.
    """
    return _Diagnosis(raw, file_size, name).run(decoded)


class _EnoughError(Exception):
    """So much is wrong that the rest of the header is not read."""


class _Diagnosis:
    """What is wrong with a header."""

    def __init__(self, raw: bytes, file_size: int, name: str) -> None:
        self.raw = raw
        self.file_size = file_size
        self.payload_size = file_size - 8 - len(raw)
        self.name = name
        self.violations: list[Violation] = []
        #: How often something was wrong, replaced entries included.
        self.refused = 0
        self.repeated: dict[str, None] = {}
        self.repetitions = 0

    def refuse(self, code: str, obj: str, expected: str, found: str, remedy: str = _REWRITE) -> None:
        if self.refused == MOST_VIOLATIONS:
            raise _EnoughError
        self.refused += 1
        obj = shown(obj) if is_text(obj) else ascii(obj[:MOST_CHARACTERS])
        self.violations.append(
            Violation(code=code, object=obj or "(empty name)", expected=expected, found=found, remedy=remedy, shard=self.name)
        )

    def run(self, decoded: Decoded | None) -> Decoded:
        entries: dict[str, TensorEntry] = {}
        metadata: dict[str, str] = {}
        if decoded is not None and all(are_sizes([*entry.shape, *entry.data_offsets]) for entry in decoded[0].values()):
            entries, metadata = decoded
            self._places(entries)
        elif self.raw[:1] != b"{":
            kind = recognize(self.raw)
            found = f"{bytes(self.raw[:8])!r}" + (f": {kind.words}" if kind else "")
            self.refuse("header-json", self.name, "a JSON object that begins with '{'", found, kind.remedy if kind else _REWRITE)
        else:
            try:
                metadata = self._members(Members.of(self.raw), entries)
                self._name_repeated()
                if not self.violations:
                    self._offsets(entries)
            except JsonFault as fault:  # nothing that was read before it says what the rest would have said
                self.violations, self.refused = [], 0
                self.refuse("header-json", self.name, "strict UTF-8 JSON", str(fault))
            except LongValueError as e:
                self._stopped(f"a value of more than {LONGEST_VALUE:,} characters at character {e.position:,}")
            except _EnoughError:
                self._stopped("more than these")
        if self.violations:
            raise Refusal(self.violations)
        return entries, metadata

    def _members(self, members: Members, entries: dict[str, TensorEntry]) -> dict[str, str]:
        """Judge the entries into `entries`, and return the metadata: of a repeated name, the last counts."""
        metadata: dict[str, str] = {}
        names: set[str] = set()
        faults: dict[str, list[Violation]] = {}
        try:
            while (name := members.key()) is not None:
                if name in names:
                    self._repeats(name)
                    entries.pop(name, None)
                names.add(name)
                faults[name] = self.violations = []
                if name == "__metadata__":
                    metadata = self._metadata(members)
                elif (entry := self._entry(name, self._fields(members))) is not None:
                    entries[name] = entry
                if not self.violations:
                    del faults[name]
        finally:
            self.violations = [each for listed in faults.values() for each in listed]
        members.end()
        return metadata

    def _repeats(self, name: str) -> None:
        """Note a repeated name; each time counts towards what is enough."""
        self.repeated.setdefault(name)
        self.repetitions += 1
        if self.repetitions >= MOST_VIOLATIONS:
            raise _EnoughError

    def _name_repeated(self) -> None:
        listed, self.violations, self.refused = self.violations, [], 0
        for name in self.repeated:
            self.refuse("header-duplicate-key", name, "each name once", "the name more than once")
        self.violations += listed[: MOST_VIOLATIONS - len(self.violations)]
        self.repeated.clear()

    def _stopped(self, found: str) -> None:
        """Say that the rest of the header was not read."""
        expected = f"at most {MOST_VIOLATIONS:,} violations, and values that belong in a header"
        found += "; the rest of the header was not read"
        self._name_repeated()
        self.violations.append(
            Violation(code="violations-unlisted", object=last_name(self.name), expected=expected, found=found, shard=self.name)
        )

    def _fields(self, members: Members) -> Any:
        """Read the value of an entry; a long object is walked over: a shape may have very many dimensions."""
        try:
            return members.value()
        except LongValueError:
            if not members.at_object:
                raise
        fields: list[tuple[str, Any]] = []
        inner = members.inner()
        while (key := inner.key()) is not None:
            if len(fields) == _MOST_FIELDS:
                raise LongValueError(inner.position)
            fields.append((key, inner.value()))
        members.leave(inner)
        return object_of(fields)

    def _metadata(self, members: Members) -> dict[str, str]:
        """`__metadata__` is absent, null, or an object of strings."""
        if not members.at_object:
            value = members.value()
            if value is not None:
                self.refuse("header-metadata", "__metadata__", "an object of strings", _kind(value))
            return {}
        metadata: dict[str, str] = {}
        wrong: dict[str, str] = {}
        repeated: dict[str, None] = {}
        inner = members.inner()
        while (key := inner.key()) is not None:
            value = inner.value()
            if key in metadata or key in wrong:
                repeated.setdefault(key)
                wrong.pop(key, None)
            if type(value) is str:
                metadata[key] = value
            else:
                wrong[key] = _kind(value)
                metadata.pop(key, None)
            if len(wrong) + len(repeated) > MOST_VIOLATIONS:
                break
        members.leave(inner)
        self._judge_metadata(metadata, wrong, repeated)
        return metadata

    def _judge_metadata(self, metadata: dict[str, str], wrong: dict[str, str], repeated: dict[str, None]) -> None:
        if wrong and {*metadata, *wrong} <= {*_FIELDS}:
            self.refuse("header-metadata", "__metadata__", "an object of strings: the name is reserved", "a tensor of that name")
            return
        for key in repeated:
            self.refuse("header-duplicate-key", f"__metadata__.{key}", "each key once", "the key more than once")
        for key, kind in wrong.items():
            self.refuse("header-metadata", f"__metadata__.{key}", "a string", kind)
        for key, value in metadata.items():
            if not is_text(key) or not is_text(value):
                self.refuse("header-json", f"__metadata__.{key}", "text", "a lone surrogate, which is not a character")

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
            self.refuse("header-entry", name, "the fields dtype, shape and data_offsets and no other", f"the field {extra[:80]!r}")
        dtype, shape, offsets = (value.get(key) for key in _FIELDS)
        if "dtype" in value and (type(dtype) is not str or dtype not in BITS):
            self.refuse("dtype-unknown", name, "a dtype of safetensors 0.8, in capitals", _kind(dtype))
        if "shape" in value and not are_sizes(shape):
            self.refuse("header-entry", name, "a shape of whole numbers from 0 to 2^64 - 1", _kind(shape))
        if "data_offsets" in value and not (are_sizes(offsets) and len(offsets) == 2):
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
        if end - begin == length:
            return True
        geometry = f"{entry.dtype} {write_shape(entry.shape)}"
        if length is None:
            self.refuse("shape-overflow", name, "a size in whole bytes that fits in 64 bits", geometry)
        else:
            self.refuse("offsets-size", name, f"{length:,} bytes for {geometry}", f"{end - begin:,} bytes at [{begin}, {end}]")
        return False

    def _places(self, entries: dict[str, TensorEntry]) -> None:
        """Judge where tensors lie whose entries are well formed."""
        try:
            for name, entry in entries.items():
                self._span(name, entry)
            if not self.violations:
                self._offsets(entries)
        except _EnoughError:
            self._stopped("more than these")

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


def _kind(value: Any) -> str:
    """Write a value in 80 characters at most."""
    if value is None:
        return "null"
    return "an object" if isinstance(value, dict) else brief(value)
