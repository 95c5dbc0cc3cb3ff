"""Our header reader against safetensors 0.8.0: what it refuses, we refuse; what we accept, it reads the same.

The examples are the same on every run. To search for longer, with new ones, as many for each property:
`TENSOR_CONTRACTS_FUZZ_EXAMPLES=20000 pytest tests/attacks/test_header_differential.py`.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeAlias

import pytest
import safetensors
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tensorhub_contracts.checkpoints import geometry as dtypes
from tensorhub_contracts.checkpoints.header import _decode_fast, _geometries_of, _tiles, read_header
from tensorhub_contracts.checkpoints.header_diagnosis import diagnose_header
from tensorhub_contracts.errors import Refusal
from tests.support.checkpoint_files import BITS, file_bytes, header_bytes, size_in_bytes

EXAMPLES = int(os.environ.get("TENSOR_CONTRACTS_FUZZ_EXAMPLES", "0"))

#: Names to dtype and shape, and the metadata.
Reading: TypeAlias = tuple[dict[str, tuple[str, tuple[int, ...]]], dict[str, str]]


def examples(default: int) -> Any:
    """Fixed examples for a check that must be stable, new ones for a longer search."""
    return settings(
        max_examples=EXAMPLES or default,
        deadline=None,
        derandomize=not EXAMPLES,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file that every example overwrites."""
    return tmp_path_factory.mktemp("differential") / "model.safetensors"


def reference(path: Path, content: bytes) -> Reading | None:
    """What safetensors reads from a file with this content, or None if it refuses."""
    path.write_bytes(content)
    try:
        with safetensors.safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
            return {name: (each.get_dtype(), tuple(each.get_shape())) for name, each in slices.items()}, dict(file.metadata() or {})
    except safetensors.SafetensorError:
        return None


def ours(content: bytes) -> Reading | Refusal:
    try:
        header = read_header(content, name="model.safetensors")
    except Refusal as refusal:
        return refusal
    return {name: (entry.dtype, entry.shape) for name, entry in header.tensors.items()}, dict(header.metadata)


# What a generated header is made of.


class Member(NamedTuple):
    """A key and its value, both as JSON text."""

    key: str
    value: str


names = st.one_of(
    st.sampled_from(
        ["a", "b", "layers.0.weight", "w", "dtype", "shape", "data_offsets", '"', "\\", 'x":', "é", "😀", "", " ", "\x00", "\x7f", "{", "}"]
    ),
    st.text(st.characters(codec="utf-8"), max_size=6),
)
whole_bytes = st.tuples(st.sampled_from(sorted(BITS)), st.lists(st.integers(0, 5), max_size=4)).map(
    lambda drawn: (drawn[0], tuple(drawn[1])) if BITS[drawn[0]] * _product(drawn[1]) % 8 == 0 else (drawn[0], (*drawn[1], 4))
)


def _product(numbers: list[int]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result


@st.composite
def valid_headers(draw: st.DrawFn) -> tuple[bytes, int]:
    """A header that is right, in any of the ways in which JSON can be written, and the size of its payload."""
    tensors = draw(st.dictionaries(names.filter(lambda name: name != "__metadata__"), whole_bytes, max_size=4))
    metadata = draw(st.none() | st.dictionaries(names, names, max_size=3))
    random = Random(draw(st.integers(0, 2**32)))  # one draw for all of the layout: the search spends its time on reading, not on drawing
    position = 0
    members: list[tuple[str, Any]] = []
    for name in random.sample(list(tensors), len(tensors)):
        dtype, shape = tensors[name]
        end = position + size_in_bytes(dtype, shape)
        fields: list[tuple[str, Any]] = [("dtype", dtype), ("shape", list(shape)), ("data_offsets", [position, end])]
        members.append((name, dict(random.sample(fields, 3))))
        position = end
    random.shuffle(members)
    if metadata is not None or random.random() < 0.3:
        members.insert(random.choice([0, len(members)]), ("__metadata__", metadata))
    separators = random.choice([(",", ":"), (", ", ": "), (" , ", " : "), (",\n", ":\t")])
    text = json.dumps(dict(members), ensure_ascii=random.random() < 0.5, separators=separators)
    return text.encode() + random.choice([b"", b" ", b"     ", b"\n"]), position


NUMBERS = [
    "0", "1", "2", "4", "8", "12", "-0", "-1", "00", "01", "1.0", "0.0", "4.0", "4e0", "1E0", "true", "false", "null", '"4"', "[]", "{}",
    "NaN", "Infinity", "-Infinity", "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551615",
    "18446744073709551616", "1180591620717411303424", "1e400", "1" * 41, "0x4", "+4", "4 ", " 4",
]  # fmt: skip  # forty lines of one number each say less
numbers = st.sampled_from(NUMBERS)
LITERALS = [
    *NUMBERS, '"F32"', '"f32"', '"F33"', '""', '"a"', '"__metadata__"', '"dtype"', '"shape"', '"data_offsets"', '"\\ud800"', '"\\u0000"',
    '"\\ud83d\\ude00"', "[[]]", "//", "/**/", "\ufeff", "\0", ",", ":", "{", "}", "[", "]", " ", "\n",
]  # fmt: skip  # forty lines of one literal each say less
literals = st.sampled_from(LITERALS)
tokens = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+0-9.eE]+|[a-zA-Z]+|\s+|.', re.DOTALL)


def mutate(raw: bytes, random: Random) -> bytes:
    """Let one to three accidents happen to a header: flipped bits, exchanged, repeated, removed and foreign fragments."""
    for _ in range(random.randint(1, 3)):
        parts = tokens.findall(raw)
        if not parts:
            return random.choice(LITERALS).encode()
        first, last = sorted(random.randrange(len(parts)) for _ in range(2))
        match random.randrange(8):
            case 0:
                position = random.randrange(len(raw))
                parts = [raw[:position], bytes([raw[position] ^ (1 << random.randrange(8))]), raw[position + 1 :]]
            case 1 | 2 | 3:
                parts[first] = random.choice(LITERALS).encode()
            case 4:
                parts.insert(first, random.choice(LITERALS).encode())
            case 5:
                del parts[first : min(last, first + 4) + 1]
            case 6:
                parts[last:last] = [*parts[first:last], *random.choice([[], [b","]])]
            case _:
                parts[first], parts[last] = parts[last], parts[first]
        raw = b"".join(parts)
    return raw


@st.composite
def mutated_headers(draw: st.DrawFn) -> tuple[bytes, int]:
    raw, payload_size = draw(valid_headers())
    random = Random(draw(st.integers(0, 2**32)))
    return mutate(raw, random), max(payload_size + random.choice([0, 0, 0, 1, -1, 4]), 0)


@st.composite
def hostile_headers(draw: st.DrawFn) -> tuple[bytes, int]:
    """A header put together from fields that are each wrong in a way of their own, and sometimes right."""

    def numbers_in_brackets(right: list[int], most: int) -> str:
        if draw(st.integers(0, 3)):
            return "[" + ",".join(map(str, right)) + "]"
        return "[" + ",".join(draw(st.lists(numbers, max_size=most))) + "]"

    def write(members: list[Member]) -> str:
        if not draw(st.integers(0, 7)) and members:
            members = [*members, draw(st.sampled_from(members))]
        return "{" + ",".join(f"{key}:{value}" for key, value in members) + "}"

    position = 0
    members = []
    for name in draw(st.lists(st.sampled_from(['"a"', '"b"', '"c"', '"\\u0061"', '""', '"__metadata__"', '"\\ud800"']), max_size=4)):
        elements = draw(st.integers(0, 3))
        span = [position, position + 4 * elements]
        fields = [
            Member('"dtype"', draw(st.sampled_from(['"F32"'] * 5 + ['"I32"', '"F4"', '"f32"', "null", "5", '{"F32":null}', '["F32"]']))),
            Member('"shape"', numbers_in_brackets([elements], 3)),
            Member('"data_offsets"', numbers_in_brackets(span, 3)),
        ]
        if not draw(st.integers(0, 6)):
            fields.append(Member(draw(st.sampled_from(['"extra"', '"\\u0064type"', '"dtype"', '"shape "'])), draw(literals)))
        if not draw(st.integers(0, 9)):
            fields.pop(draw(st.integers(0, len(fields) - 1)))
        value = write(fields)
        if not draw(st.integers(0, 9)):
            value = draw(st.sampled_from([f'["F32",[{elements}],[{span[0]},{span[1]}]]', "null", "[]", "5", '"F32"']))
        members.append(Member(name, value))
        position = span[1]
    if not draw(st.integers(0, 2)):
        values = [
            "null",
            "{}",
            '{"format":"pt"}',
            '{"a":"b","a":"b"}',
            '{"a":1}',
            '{"a":null}',
            '{"a":NaN}',
            '{"a":{"b":"c"}}',
            "[]",
            '"x"',
            "[null]",
        ]
        members.insert(draw(st.sampled_from([0, len(members)])), Member('"__metadata__"', draw(st.sampled_from(values))))
    before, after = (
        draw(st.sampled_from([""] * 9 + [" ", "\n", "\ufeff", "[", "\0"])),
        draw(st.sampled_from([""] * 9 + [" ", "\n", "\0", "x", "}", ","])),
    )
    return (before + write(members) + after).encode(), max(position + draw(st.sampled_from([0] * 6 + [1, -1])), 0)


any_headers = st.one_of(valid_headers(), mutated_headers(), hostile_headers())


# Where we are stricter, and why.

ENTRY = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'


class Stricter(NamedTuple):
    """A header that safetensors accepts and we refuse, with the code and the object that the refusal names."""

    header: str
    code: str
    object: str
    reason: str


STRICTER = {
    "leading space": Stricter(f' {{"a":{ENTRY}}}', "header-json", "model.safetensors", "the format says that a header begins with '{'"),
    "leading newline": Stricter(f'\n{{"a":{ENTRY}}}', "header-json", "model.safetensors", "the same"),
    "same name twice, same entry": Stricter(
        f'{{"a":{ENTRY},"a":{ENTRY}}}', "header-duplicate-key", "a", "other readers see one, two or the last"
    ),
    "same name twice, once escaped": Stricter(
        f'{{"a":{ENTRY},"\\u0061":{ENTRY}}}', "header-duplicate-key", "a", "the escape hides the repetition"
    ),
    "metadata key twice": Stricter(
        f'{{"__metadata__":{{"k":"1","k":"2"}},"a":{ENTRY}}}',
        "header-duplicate-key",
        "__metadata__.k",
        "readers differ on which value they take",
    ),
    "extra field": Stricter(
        f'{{"a":{ENTRY[:-1]},"order":"F"}}}}', "header-entry", "a", "a field that we do not know might change the meaning"
    ),
    "extra field twice": Stricter(f'{{"a":{ENTRY[:-1]},"x":1,"x":2}}}}', "header-duplicate-key", "a: x", "the same, and repeated"),
    "entry as a list": Stricter('{"a":["F32",[1],[0,4]]}', "header-entry", "a", "an accident of the parser generator, in no specification"),
    "dtype as an object": Stricter(
        '{"a":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}}', "dtype-unknown", "a", "an accident of the parser generator as well"
    ),
}


@pytest.mark.parametrize("case", STRICTER.values(), ids=STRICTER)
def test_where_we_are_stricter_safetensors_accepts_and_we_refuse_by_name(case: Stricter, path: Path) -> None:
    content = file_bytes(case.header.encode(), bytes(4))
    assert reference(path, content) is not None, "no longer stricter: take the row out"
    refusal = ours(content)
    assert isinstance(refusal, Refusal)
    assert (case.code, case.object) in {(violation.code, violation.object) for violation in refusal.violations}


def reasons_to_be_stricter(raw: bytes) -> set[str]:
    """The codes that the rows of `STRICTER` allow for this header, found with nothing but the standard library."""
    allowed: set[str] = set()
    text = raw.decode()
    if text[:1] in (" ", "\n", "\t", "\r"):
        allowed.add("header-json")

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(members)) < len(members):
            allowed.add("header-duplicate-key")
        return dict(members)

    for name, entry in json.loads(text, object_pairs_hook=pairs).items():
        if name != "__metadata__" and (not isinstance(entry, dict) or set(entry) - {"dtype", "shape", "data_offsets"}):
            allowed.add("header-entry")
        if name != "__metadata__" and isinstance(entry, dict) and isinstance(entry.get("dtype"), dict):
            allowed.add("dtype-unknown")
    return allowed


def compare(raw: bytes, payload_size: int, path: Path) -> bool:
    """Assert that we are as strict as safetensors, and where stricter for a reason in the table; return whether we accept."""
    content = file_bytes(raw, bytes(payload_size))
    theirs, mine = reference(path, content), ours(content)
    if theirs is None:
        assert isinstance(mine, Refusal), f"safetensors refuses {raw!r}, we read {mine}"
        assert mine.violations
    elif isinstance(mine, Refusal):
        allowed = reasons_to_be_stricter(raw)
        assert set(mine.codes) <= allowed, f"we refuse {raw!r} for {mine}, and no row says why; allowed: {allowed}"
    else:
        assert mine == theirs, f"we and safetensors read {raw!r} differently"
    return not isinstance(mine, Refusal)


def diagnosed(raw: bytes, payload_size: int, *, decoded: Any = None) -> Any:
    """Return what the diagnosis says: entries and metadata, or its violations."""
    try:
        return diagnose_header(raw, file_size=8 + len(raw) + payload_size, name="model.safetensors", decoded=decoded)
    except Refusal as refusal:
        return sorted(map(str, refusal.violations))


def assert_the_fast_path_agrees(raw: bytes, payload_size: int) -> None:
    """Assert that what the fast path decodes, the diagnosis reads the same, whether it is right or wrong where the tensors lie."""
    decoded = _decode_fast(raw)
    if decoded is not None:
        slow = diagnosed(raw, payload_size)
        assert diagnosed(raw, payload_size, decoded=decoded) == slow, raw
        if _tiles(decoded[0].values(), _geometries_of(decoded[0].values()), payload_size):
            assert decoded == slow, raw


@examples(300)
@given(drawn=valid_headers())
def test_valid_headers_are_accepted_with_the_same_names_dtypes_shapes_and_metadata(drawn: tuple[bytes, int], path: Path) -> None:
    raw, payload_size = drawn
    content = file_bytes(raw, bytes(payload_size))
    theirs = reference(path, content)
    assert theirs is not None, "the generator wrote a header that is not valid"
    assert ours(content) == theirs


@examples(700)
@given(drawn=mutated_headers())
@example(drawn=(b'{"a":{"dtype":"F32","shape":[-0],"data_offsets":[0,0]}}', 0))
def test_mutated_headers_are_never_read_more_leniently_than_safetensors_reads_them(drawn: tuple[bytes, int], path: Path) -> None:
    compare(*drawn, path)


@examples(700)
@given(drawn=hostile_headers())
@example(drawn=(b'{"a":{"dtype":"F32","shape":[0,18446744073709551616],"data_offsets":[0,0]}}', 0))
def test_hostile_headers_are_never_read_more_leniently_than_safetensors_reads_them(drawn: tuple[bytes, int], path: Path) -> None:
    compare(*drawn, path)


#: Headers as libraries write them, and one in which everything that JSON allows is used.
SEEDS = (
    (header_bytes({"a": ("F8_E4M3", (3,)), "b": ("F32", (1,)), "c": ("BF16", (2, 1))}, {"format": "pt"}), 11),
    (header_bytes({"a": ("F32", (1,)), "b": ("F32", (0,)), "s": ("F32", ())}), 8),
    (header_bytes({"w": ("F4", (2, 4)), "e": ("F8_E8M0", (4,)), "m": ("F6_E2M3", (4,))}, {"k": "v", "n": "1"}), 11),
    (
        b'{"__metadata__" : {"a":"b"},\n "x\\u0041" : {"shape":[2,2], "dtype":"U8",\t"data_offsets":[0,4]}, '
        b'"y":{"data_offsets":[4,4],"dtype":"C64","shape":[0]}} ',
        4,
    ),
    (b'{"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":null}', 8),
)  # fmt: skip  # a header a line


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_thousands_of_accidents_are_never_read_more_leniently_than_safetensors_reads_them(seed: int, path: Path) -> None:
    """Faster than the properties above, and so broader; a failure shows the header itself."""
    raw, payload_size = SEEDS[seed]
    random = Random(seed)
    accepted = 0
    for _ in range(EXAMPLES or 2500):
        mutant, size = mutate(raw, random), max(payload_size + random.choice([0, 0, 0, 0, 1, -1, 4]), 0)
        accepted += compare(mutant, size, path)
        assert_the_fast_path_agrees(mutant, size)
    assert 0 < accepted < (EXAMPLES or 2500) * 0.8, "either every header is broken or none is: such accidents try nothing"


@examples(200)
@given(drawn=any_headers)
def test_the_bytes_and_the_file_have_one_verdict(drawn: tuple[bytes, int], path: Path) -> None:
    raw, payload_size = drawn
    content = file_bytes(raw, bytes(payload_size))
    path.write_bytes(content)
    from_bytes = ours(content)
    if isinstance(from_bytes, Refusal):
        with pytest.raises(Refusal) as caught:
            read_header(path, name="model.safetensors")
        assert caught.value.violations == from_bytes.violations
    else:
        assert read_header(path, name="model.safetensors") == read_header(content, name="model.safetensors")
        assert {name for name, _ in safetensors.deserialize(content)} == set(from_bytes[0])


@examples(1000)
@given(drawn=any_headers)
@example(drawn=(f'{{"a":{ENTRY},"a":{ENTRY}}}'.encode(), 4))
@example(drawn=(f'{{"a" :{ENTRY},"a":{ENTRY}}}'.encode(), 4))
@example(drawn=(f'{{"__metadata__":{{"k":"1","k":"2"}},"a":{ENTRY}}}'.encode(), 4))
@example(drawn=(b'{"__metadata__":{"k":"1"}}   ', 1))
@example(drawn=(b'{"a":{"dtype":"F32","shape":[-0],"data_offsets":[0,0]}}', 0))
@example(drawn=(b'{"a":{"dtype":"F32","shape":[0,18446744073709551616],"data_offsets":[0,0]}}', 0))
def test_the_fast_path_accepts_only_what_the_diagnosis_accepts_and_reads_it_the_same(drawn: tuple[bytes, int]) -> None:
    raw, payload_size = drawn
    assert_the_fast_path_agrees(raw, payload_size)


@pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}])
def test_the_fast_path_takes_what_libraries_write(metadata: dict[str, str] | None) -> None:
    raw = header_bytes({"a.weight": ("F8_E4M3", (256, 384)), "a.weight_scale_inv": ("F32", (2, 3)), "norm": ("BF16", ())}, metadata)
    assert _decode_fast(raw) is not None


# The dtype table.


def test_the_dtype_table_holds_exactly_the_dtypes_of_safetensors(path: Path) -> None:
    refused = reference(path, file_bytes(b'{"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}}', bytes(4)))
    assert refused is None
    with pytest.raises(safetensors.SafetensorError) as caught:
        safetensors.deserialize(file_bytes(b'{"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}}', bytes(4)))
    listed = re.search(r"unknown variant `F33`, expected one of (.*?) at line", str(caught.value))
    assert listed, f"the message no longer lists the dtypes: {caught.value}"
    assert set(dtypes.BITS) == set(re.findall(r"`(\w+)`", listed[1]))
    assert set(dtypes.BITS) == set(BITS)


@pytest.mark.parametrize("dtype", sorted(BITS))
def test_each_dtype_is_as_wide_as_safetensors_says(dtype: str, path: Path) -> None:
    size = BITS[dtype]  # 8 elements take as many bytes as one has bits
    for difference in (-1, 0, 1):
        raw = f'{{"a":{{"dtype":"{dtype}","shape":[2,4],"data_offsets":[0,{size + difference}]}}}}'.encode()
        content = file_bytes(raw, bytes(size + difference))
        expected = ({"a": (dtype, (2, 4))}, {}) if difference == 0 else None
        assert reference(path, content) == expected
        mine = ours(content)
        if difference:
            assert isinstance(mine, Refusal)
            (violation,) = mine.violations
            assert (violation.code, violation.object) == ("offsets-size", "a")
            assert violation.expected == f"{size} bytes for {dtype} [2, 4]" or violation.expected == f"{size} bytes for {dtype} [2,4]"
            assert f"{size + difference} bytes" in violation.found
        else:
            assert mine == expected


@pytest.mark.parametrize("dtype", sorted(name for name, bits in BITS.items() if bits < 8))
def test_sub_byte_elements_that_do_not_fill_whole_bytes_are_refused(dtype: str, path: Path) -> None:
    for elements, end in itertools.product((1, 3, 5), (0, 1, 2, 3, 4)):
        content = file_bytes(f'{{"a":{{"dtype":"{dtype}","shape":[{elements}],"data_offsets":[0,{end}]}}}}'.encode(), bytes(end))
        assert reference(path, content) is None
        mine = ours(content)
        assert isinstance(mine, Refusal)
        (violation,) = mine.violations
        assert (violation.code, violation.object) == ("shape-overflow", "a")
        assert f"{dtype} [{elements}]" in violation.found


# Numbers that two readers of JSON take for different things, each alone, so that a failure of one hides no other.

ODD_NUMBERS = {
    "negative zero as a dimension": ("[-0]", "[0,0]", 0),
    "negative zero as an offset": ("[1]", "[-0,4]", 4),
    "negative zero among other dimensions": ("[3,-0]", "[0,0]", 0),
    "2^64 beside a zero": ("[0,18446744073709551616]", "[0,0]", 0),
    "2^70 beside a zero": ("[1180591620717411303424,0]", "[0,0]", 0),
    "a dimension that is a float": ("[1.0]", "[0,4]", 4),
    "a dimension with an exponent": ("[1e0]", "[0,4]", 4),
    "an offset that is a float": ("[1]", "[0,4.0]", 4),
    "a boolean as a dimension": ("[true]", "[0,4]", 4),
    "a boolean as an offset": ("[0]", "[false,0]", 0),
    "a text as a dimension": ('["1"]', "[0,4]", 4),
    "a negative dimension": ("[-1]", "[0,4]", 4),
    "two negative dimensions": ("[-1,-1]", "[0,4]", 4),
    "null as a dimension": ("[null]", "[0,4]", 4),
    "three offsets": ("[1]", "[0,4,4]", 4),
    "one offset": ("[0]", "[0]", 0),
    "offsets that are an object": ("[0]", '{"0":0}', 0),
    "a shape that is a number": ("1", "[0,4]", 4),
}


@pytest.mark.parametrize(("shape", "offsets", "payload_size"), ODD_NUMBERS.values(), ids=ODD_NUMBERS)
def test_a_number_that_is_no_size_is_refused_naming_the_tensor(shape: str, offsets: str, payload_size: int, path: Path) -> None:
    content = file_bytes(f'{{"layer.weight":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}'.encode(), bytes(payload_size))
    assert reference(path, content) is None
    mine = ours(content)
    assert isinstance(mine, Refusal), f"we read {mine}"
    assert mine.codes == ("header-entry",)
    assert mine.violations[0].object == "layer.weight"
    assert "whole numbers" in mine.violations[0].expected or "offsets" in mine.violations[0].expected


@pytest.mark.parametrize("order", ["offsets", "zeros first", "zeros last"])
def test_empty_tensors_may_lie_where_another_begins_or_ends(order: str, path: Path) -> None:
    zero = '{"dtype":"F32","shape":[0],"data_offsets":[%d,%d]}'
    members = [("z0", zero % (0, 0)), ("a", ENTRY), ("z1", zero % (4, 4)), ("z2", zero % (4, 4))]
    if order != "offsets":
        members.sort(key=lambda member: ("z" in member[0]) != (order == "zeros first"))
    content = file_bytes(("{" + ",".join(f'"{name}":{entry}' for name, entry in members) + "}").encode(), bytes(4))
    theirs = reference(path, content)
    assert theirs is not None
    assert ours(content) == theirs
