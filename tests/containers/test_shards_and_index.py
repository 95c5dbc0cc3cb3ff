"""Which files are the checkpoint: index, numbered shards, links; and every way in which they can disagree."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorhub_contracts import inspect
from tensorhub_contracts.checkpoints.read import read_checkpoint
from tensorhub_contracts.checkpoints.shard_index import parse_index
from tensorhub_contracts.errors import Refusal
from tests.support.checkpoint_files import (
    Tensors,
    header_bytes,
    payload_size,
    shard_name,
    size_in_bytes,
    write_checkpoint,
    write_index,
    write_raw,
    write_sparse,
)
from tests.support.refusals import findings, refused, refused_alone, well_formed, within

BLOCKWISE = {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}}
WEIGHT, SCALE = "experts.92.gate_proj.weight", "experts.92.gate_proj.weight_scale_inv"
PAIR: Tensors = {WEIGHT: ("F8_E4M3", (256, 384)), SCALE: ("F32", (2, 3))}
UNQUANTIZED: Tensors = {f"layers.{number}.weight": ("BF16", (8, 16)) for number in range(6)}
INDEX = "model.safetensors.index.json"
FIRST, SECOND = shard_name(1, 2), shard_name(2, 2)


def weight_map(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / INDEX).read_text())["weight_map"]
    return found


# Pairs across shards: B1-03.


def test_a_weight_and_its_scale_are_paired_across_shards(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, PAIR, config=BLOCKWISE, shards=2, placement={WEIGHT: 1, SCALE: 2})
    inspection = inspect(folder)
    assert inspection.contract == "hf.fp8-blockwise@1", findings(inspection)
    assert [unit.name for unit in inspection.units] == [WEIGHT]
    assert inspection.checkpoint is not None
    assert dict(inspection.checkpoint.shard_of) == {WEIGHT: FIRST, SCALE: SECOND}


@pytest.mark.parametrize("index", [True, False])
def test_without_the_shard_of_the_scale_the_tree_is_incomplete_and_the_scale_is_not_called_missing(index: bool, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, PAIR, config=BLOCKWISE, shards=2, placement={WEIGHT: 1, SCALE: 2}, index=index)
    (folder / SECOND).unlink()
    inspection = inspect(folder)
    (violation,) = inspection.violations
    if index:
        assert (violation.code, violation.object, violation.shard) == ("index-shard-missing", SECOND, INDEX)
    else:
        assert (violation.code, violation.object) == ("shards-incomplete", "model-*-of-2")
        assert "number 2 missing" in violation.found


# Faults of shards.


def test_a_corrupt_second_shard_is_refused_by_name(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2)
    write_raw(folder / SECOND, b'{"a": garbage}', 100)
    violation = refused_alone("header-json", read_checkpoint, folder)
    assert (violation.object, violation.shard) == (SECOND, SECOND)


def test_a_truncated_second_shard_is_refused_with_expected_size_actual_size_and_the_first_tensor_affected(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2)
    size = (folder / SECOND).stat().st_size
    os.truncate(folder / SECOND, size - 300)  # three tensors of 256 bytes: the end of the second one and all of the third are lost
    violation = refused_alone("file-truncated", read_checkpoint, folder)
    assert (violation.object, violation.shard) == (SECOND, SECOND)
    assert violation.expected == f"{size:,} bytes"
    assert violation.found.startswith(f"{size - 300:,} bytes: layers.3.weight ends 44 bytes beyond")


def test_lying_offsets_in_the_second_shard_are_refused_naming_shard_and_tensor(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, PAIR, config=BLOCKWISE, shards=2, placement={WEIGHT: 1, SCALE: 2})
    lying = header_bytes({SCALE: ("F32", (2, 3))}).replace(b'"shape":[2,3]', b'"shape":[3,3]')
    write_raw(folder / SECOND, lying, 24)
    violation = refused_alone("offsets-size", read_checkpoint, folder)
    assert (violation.object, violation.shard) == (SCALE, SECOND)
    assert "36 bytes for F32 [3, 3]" in violation.expected
    assert "24 bytes" in violation.found


def test_faults_in_two_shards_are_both_listed(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=3)
    (folder / shard_name(1, 3)).write_bytes(b"")
    os.truncate(folder / shard_name(3, 3), (folder / shard_name(3, 3)).stat().st_size - 1)
    violations = refused(read_checkpoint, folder)
    assert [(each.code, each.object) for each in violations] == [("file-empty", shard_name(1, 3)), ("file-truncated", shard_name(3, 3))]


def test_a_fault_of_a_shard_and_one_of_the_configuration_are_both_listed(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2)
    (folder / SECOND).write_bytes(b"")
    (folder / "config.json").write_text("{")
    assert {(each.code, each.object) for each in refused(read_checkpoint, folder)} == {
        ("file-empty", SECOND),
        ("config-json", "config.json"),
    }


def test_an_index_that_disagrees_and_a_broken_configuration_are_both_listed(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2)
    write_index(folder / INDEX, {**weight_map(folder), "ghost": FIRST})
    (folder / "config.json").write_text("{")
    assert {(each.code, each.object) for each in refused(read_checkpoint, folder)} == {
        ("index-tensor-missing", "ghost"),
        ("config-json", "config.json"),
    }


def test_a_missing_shard_and_a_fault_in_one_that_is_there_are_both_listed(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=3)
    (folder / shard_name(1, 3)).unlink()
    (folder / shard_name(2, 3)).write_bytes(b"")
    found = {(each.code, each.object) for each in refused(read_checkpoint, folder)}
    assert found == {("index-shard-missing", shard_name(1, 3)), ("file-empty", shard_name(2, 3))}


def test_shards_that_share_bytes_leave_holes_or_trail_are_refused_in_a_sharded_tree_as_well(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=3)
    one, two, three = (shard_name(number, 3) for number in (1, 2, 3))
    for name, change in ((one, (b"[256,512]", b"[128,384]")), (two, (b"[256,512]", b"[257,513]"))):
        names = [tensor for tensor, shard in weight_map(folder).items() if shard == name]
        write_raw(folder / name, header_bytes({each: UNQUANTIZED[each] for each in names}).replace(*change), 513 if name == two else 512)
    os.truncate(folder / three, (folder / three).stat().st_size + 1)
    found = {(each.code, each.object, each.shard) for each in refused(read_checkpoint, folder)}
    assert found == {
        ("offsets-overlap", "layers.3.weight", one),
        ("file-trailing-bytes", one, one),
        ("offsets-hole", "layers.4.weight", two),
        ("file-trailing-bytes", three, three),
    }


# The same tensor in two shards.


def test_a_tensor_in_two_shards_without_an_index_is_refused_naming_both(tmp_path: Path) -> None:
    write_sparse(tmp_path / FIRST, {"a": ("BF16", (2, 2)), "shared": ("BF16", (4, 4))})
    write_sparse(tmp_path / SECOND, {"b": ("BF16", (2, 2)), "shared": ("BF16", (4, 4))})
    violation = refused_alone("tensor-duplicate", read_checkpoint, tmp_path)
    assert violation.object == "shared"
    assert FIRST in violation.found
    assert SECOND in violation.found


@pytest.mark.parametrize(("chosen", "shape"), [(FIRST, (4, 4)), (SECOND, (8, 8))])
def test_the_index_decides_which_of_two_copies_counts(chosen: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    write_sparse(tmp_path / FIRST, {"a": ("BF16", (2, 2)), "shared": ("BF16", (4, 4))})
    write_sparse(tmp_path / SECOND, {"b": ("BF16", (2, 2)), "shared": ("BF16", (8, 8))})
    write_index(tmp_path / INDEX, {"a": FIRST, "b": SECOND, "shared": chosen})
    checkpoint = read_checkpoint(tmp_path)
    assert dict(checkpoint.shard_of) == {"a": FIRST, "b": SECOND, "shared": chosen}
    assert checkpoint.tensors["shared"].shape == shape
    assert checkpoint.held_twice == {"shared": (FIRST, SECOND)}
    assert any("shared" in note for note in inspect(tmp_path).notes)


def test_a_tensor_in_two_shards_that_the_index_puts_in_a_third_is_refused(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b", "c"), start=1):
        extra: Tensors = {"shared": ("BF16", (4, 4))} if number < 3 else {}
        write_sparse(tmp_path / shard_name(number, 3), {name: ("BF16", (2, 2)), **extra})
    one, two, three = (shard_name(number, 3) for number in (1, 2, 3))
    write_index(tmp_path / INDEX, {"a": one, "b": two, "c": three, "shared": three})
    violation = refused_alone("index-tensor-missing", read_checkpoint, tmp_path)
    assert (violation.object, violation.expected, violation.found) == ("shared", f"the tensor in {three}", f"it in {one}, {two}")


# The index against the folder: B2-16, B2-17, B2-18.


def test_all_missing_shards_are_listed_before_any_shard_is_read(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=6)
    gone = [shard_name(number, 6) for number in (2, 3, 6)]
    for name in gone:
        (folder / name).unlink()
    opened: list[str] = []
    violations = refused(read_checkpoint, folder, progress=lambda done, total: opened.append(f"{done}/{total}"))
    assert [(each.code, each.object) for each in violations] == [("index-shard-missing", name) for name in gone]


def test_files_that_the_index_does_not_name_are_reported_and_not_read(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2)
    extra = ["consolidated.safetensors", "model.safetensors", "model-4bit.safetensors", "adapter.safetensors.index.json"]
    for name in extra:
        (folder / name).write_bytes(b"not read, or this would be refused")
    inspection = inspect(folder)
    assert inspection.contract == "plain.bf16@1", findings(inspection)
    assert inspection.checkpoint is not None
    assert sorted(inspection.checkpoint.extra_files) == sorted(extra)
    (note,) = (each for each in inspection.notes if "not read" in each)
    assert "consolidated.safetensors" in note or "4 " in note or "more" in note


def test_a_single_canonical_file_counts_and_others_are_reported(tmp_path: Path) -> None:
    write_sparse(tmp_path / "model.safetensors", UNQUANTIZED)
    (tmp_path / "consolidated.safetensors").write_bytes(b"")
    checkpoint = read_checkpoint(tmp_path)
    assert [shard.name for shard in checkpoint.shards] == ["model.safetensors"]
    assert checkpoint.extra_files == ("consolidated.safetensors",)


def test_a_stale_index_is_refused_for_its_shards_and_no_other_file_is_taken(tmp_path: Path) -> None:
    write_sparse(tmp_path / "model.safetensors", UNQUANTIZED)
    write_index(tmp_path / INDEX, {name: shard_name(number % 2 + 1, 2) for number, name in enumerate(UNQUANTIZED)})
    violations = refused(read_checkpoint, tmp_path)
    assert [(each.code, each.object) for each in violations] == [("index-shard-missing", FIRST), ("index-shard-missing", SECOND)]


def test_an_index_whose_tensor_names_are_of_an_older_export_lists_every_disagreement_both_ways(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2)
    write_index(folder / INDEX, {f"transformer.{name}": shard for name, shard in weight_map(folder).items()})
    violations = refused(read_checkpoint, folder)
    assert {(each.code, each.object) for each in violations} == {
        *(("index-tensor-missing", f"transformer.{name}") for name in UNQUANTIZED),
        *(("index-tensor-unlisted", name) for name in UNQUANTIZED),
    }
    assert len(violations) == 2 * len(UNQUANTIZED)
    assert all(each.shard == INDEX for each in violations)


def test_disagreements_name_where_the_tensor_is_said_to_be_and_where_it_is(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2)
    index = weight_map(folder)
    moved, forgotten = "layers.0.weight", "layers.5.weight"
    write_index(folder / INDEX, {**{name: shard for name, shard in index.items() if name != forgotten}, moved: SECOND, "ghost": FIRST})
    found = {each.object: each for each in refused(read_checkpoint, folder)}
    assert {name: each.code for name, each in found.items()} == {
        moved: "index-tensor-missing",
        "ghost": "index-tensor-missing",
        forgotten: "index-tensor-unlisted",
    }
    assert (found[moved].expected, found[moved].found) == (f"the tensor in {SECOND}", f"it in {FIRST}")
    assert (found["ghost"].expected, found["ghost"].found) == (f"the tensor in {FIRST}", "it in no shard")
    assert SECOND in found[forgotten].found


def test_an_index_of_equal_length_with_two_tensors_exchanged_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2)
    write_index(folder / INDEX, {**weight_map(folder), "layers.0.weight": SECOND, "layers.1.weight": FIRST})
    violations = refused(read_checkpoint, folder)
    assert [(each.code, each.object) for each in violations] == [
        ("index-tensor-missing", "layers.0.weight"),
        ("index-tensor-missing", "layers.1.weight"),
    ]


def test_an_index_that_forgets_a_shard_of_the_family_is_refused_although_the_file_is_there(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2)
    write_index(folder / INDEX, {name: shard for name, shard in weight_map(folder).items() if shard == FIRST})
    violation = refused_alone("index-shard-unlisted", read_checkpoint, folder)
    assert (violation.object, violation.expected, violation.found) == ("model-*-of-2", "all 2 shards", "no tensor in number 2")


def test_numbers_that_are_left_out_are_no_fault_if_the_index_says_how_much_there_is_and_it_is_there(tmp_path: Path) -> None:
    """As MiniMax-M2.7 is numbered: up to 125 of 130, and the index names those alone."""
    names = [f"model-0000{number}-of-00005.safetensors" for number in (1, 2)]
    placed = dict(zip(UNQUANTIZED, [names[0], *[names[1]] * (len(UNQUANTIZED) - 1)], strict=True))
    for shard in names:
        write_sparse(tmp_path / shard, {name: UNQUANTIZED[name] for name, where in placed.items() if where == shard})
    size = sum(size_in_bytes(*entry) for entry in UNQUANTIZED.values())
    for stated, whole in ((size, True), (size + 1, False), (None, False), (str(size), False), (float(size), False)):
        metadata = {} if stated is None else {"metadata": {"total_size": stated}}
        (tmp_path / INDEX).write_text(json.dumps({**metadata, "weight_map": placed}))
        if whole:
            assert read_checkpoint(tmp_path).tensor_count == len(UNQUANTIZED)
        else:
            refused_alone("index-shard-unlisted", read_checkpoint, tmp_path)
    (tmp_path / INDEX).write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": placed}))
    write_sparse(tmp_path / "model-00003-of-00005.safetensors", UNQUANTIZED)
    refused_alone("index-shard-unlisted", read_checkpoint, tmp_path)  # one that is there, and that the index forgets


def test_a_lying_shard_count_takes_no_time(tmp_path: Path) -> None:
    name = "model-1-of-999999999.safetensors"
    write_sparse(tmp_path / name, UNQUANTIZED)
    write_index(tmp_path / INDEX, dict.fromkeys(UNQUANTIZED, name))
    with within(5):
        violation = refused_alone("index-shard-unlisted", read_checkpoint, tmp_path)
    assert "all 999999999 shards" in violation.expected
    assert "more" in violation.found
    (tmp_path / INDEX).unlink()
    with within(5):
        refused_alone("shards-incomplete", read_checkpoint, tmp_path)


# What a weight_map may say: B2-19.

PATHS: dict[str, Any] = {
    "a parent folder": "../other/model.safetensors",
    "an absolute path": "/etc/x.safetensors",
    "an absolute path without the suffix": "/etc/x",
    "a sub-folder": "sub/a.safetensors",
    "a sub-folder and back": "sub/../model.safetensors",
    "the folder itself": "./model.safetensors",
    "a trailing slash": "model.safetensors/",
    "backslashes": "a\\b.safetensors",
    "a drive": "C:\\x.safetensors",
    "empty": "",
    "dot": ".",
    "two dots": "..",
    "a NUL": "model.safetensors\0.safetensors",
    "another suffix": "x.bin",
    "a suffix in capitals": "model.SAFETENSORS",
    "a space after the suffix": "model.safetensors ",
    "a number": 5,
    "null": None,
    "a list": ["model.safetensors"],
    "a boolean": True,
}


@pytest.mark.parametrize("value", PATHS.values(), ids=PATHS)
def test_a_shard_that_is_no_plain_file_name_is_refused_naming_tensor_and_value(value: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_checkpoint(folder, UNQUANTIZED)
    for outside in (tmp_path / "other", folder / "sub"):
        outside.mkdir()
        write_sparse(outside / "model.safetensors", {"w": ("BF16", (2, 2))})
        write_sparse(outside / "a.safetensors", {"w": ("BF16", (2, 2))})
    (folder / INDEX).write_text(json.dumps({"weight_map": {**dict.fromkeys(UNQUANTIZED, "model.safetensors"), "w": value}}))
    violation = refused_alone("index-path", read_checkpoint, folder)
    assert violation.object.startswith("w")
    assert violation.shard == INDEX
    assert violation.expected == "a plain file name that ends in .safetensors"
    if value:
        assert repr(value) in violation.found or repr(value) in violation.object or ascii(value) in violation.found


def test_every_tensor_with_a_path_is_listed(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, UNQUANTIZED)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": "../a.safetensors", "b": 5, "c": "model.safetensors", "d": "x.bin"}}))
    violations = refused(read_checkpoint, tmp_path)
    assert {each.code for each in violations} == {"index-path"}
    assert sorted(each.object.split()[0] for each in violations) == ["a", "b", "d"]


STRANGE = {
    "longer than a file name may be": "x" * 300 + ".safetensors",
    "a lone surrogate": "\ud800.safetensors",
    "a surrogate that stands for a byte": "\udcff.safetensors",
    "an accent": "é.safetensors",
    "a dash first": "-rf.safetensors",
}


@pytest.mark.parametrize("name", STRANGE.values(), ids=STRANGE)
def test_a_strange_name_that_no_file_has_is_a_missing_shard(name: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, UNQUANTIZED)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(UNQUANTIZED, name)}))
    violations = well_formed(inspect(tmp_path).violations)
    assert {each.code for each in violations} <= {"index-shard-missing", "index-path"}
    assert all(name.encode("ascii", "backslashreplace").decode()[:6] in ascii(f"{each.object} {each.found}") for each in violations)


def test_a_tensor_name_with_a_lone_surrogate_in_the_index_can_be_shown(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED)
    (folder / INDEX).write_text(
        json.dumps({"weight_map": {**dict.fromkeys(UNQUANTIZED, "model.safetensors"), "\ud800": "model.safetensors"}})
    )
    violations = refused(read_checkpoint, folder)
    assert {each.code for each in violations} <= {"index-tensor-missing", "index-json"}
    assert "ud800" in str(violations[0])


# The index as a file.

ENTRIES = ",".join(f'"{name}":"model.safetensors"' for name in UNQUANTIZED)
BROKEN_INDEXES = {
    "cut off": (b'{"weight_map": {"a": "mod', INDEX, "at character"),
    "empty": (b"", INDEX, ""),
    "a list": (b"[]", INDEX, "weight_map"),
    "no weight_map": (b'{"metadata": {}}', INDEX, "weight_map"),
    "empty weight_map": (b'{"weight_map": {}}', INDEX, "weight_map"),
    "weight_map is a list": (b'{"weight_map": ["a"]}', INDEX, "weight_map"),
    "weight_map is null": (b'{"weight_map": null}', INDEX, "weight_map"),
    "byte-order mark": (b"\xef\xbb\xbf" + f'{{"weight_map":{{{ENTRIES}}}}}'.encode(), INDEX, "byte-order mark"),
    "UTF-16": (f'{{"weight_map":{{{ENTRIES}}}}}'.encode("utf-16"), INDEX, "not UTF-8"),
    "not UTF-8 in a name": (f'{{"weight_map":{{{ENTRIES},"'.encode() + b'\xff":"model.safetensors"}}', INDEX, "not UTF-8"),
    "not UTF-8 in the metadata": (b'{"metadata":{"a":"\xff"},"weight_map":{' + ENTRIES.encode() + b"}}", INDEX, "not UTF-8"),
    "NaN in the metadata": (f'{{"metadata":{{"total_size":NaN}},"weight_map":{{{ENTRIES}}}}}'.encode(), INDEX, "NaN"),
    "200000 brackets": (
        b'{"metadata":' + b"[" * 200_000 + b"]" * 200_000 + f',"weight_map":{{{ENTRIES}}}}}'.encode(),
        INDEX,
        "nested too deeply",
    ),
    "weight_map twice": (f'{{"weight_map":{{{ENTRIES}}},"weight_map":{{{ENTRIES}}}}}'.encode(), "weight_map", "more than once"),
    "a tensor twice, same shard": (
        f'{{"weight_map":{{{ENTRIES},"layers.0.weight":"model.safetensors"}}}}'.encode(),
        "layers.0.weight",
        "more than once",
    ),
    "a tensor twice, another shard": (
        f'{{"weight_map":{{"layers.0.weight":"other.safetensors",{ENTRIES}}}}}'.encode(),
        "layers.0.weight",
        "more than once",
    ),
    "a tensor twice, once escaped": (
        f'{{"weight_map":{{{ENTRIES},"layers.\\u0030.weight":"model.safetensors"}}}}'.encode(),
        "layers.0.weight",
        "more than once",
    ),
    "a tensor twice, one of its shards escaped": (
        f'{{"weight_map":{{{ENTRIES},"layers.0.weight":"model.safetensor\\u0073"}}}}'.encode(),
        "layers.0.weight",
        "more than once",
    ),
    "metadata twice": (f'{{"metadata":{{}},"metadata":{{}},"weight_map":{{{ENTRIES}}}}}'.encode(), "metadata", "more than once"),
    "a Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 5\n", INDEX, ""),
}


@pytest.mark.parametrize(("text", "object_", "found"), BROKEN_INDEXES.values(), ids=BROKEN_INDEXES)
def test_a_broken_index_is_refused_and_no_other_way_to_read_the_folder_is_tried(
    text: bytes, object_: str, found: str, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path, UNQUANTIZED)
    (tmp_path / INDEX).write_bytes(text)
    violation = refused_alone("index-json", read_checkpoint, tmp_path)
    assert (violation.object, violation.shard) == (object_, INDEX)
    assert found in f"{violation.expected} {violation.found}"


def test_an_index_that_is_a_git_lfs_pointer_is_called_that(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, UNQUANTIZED)
    (tmp_path / INDEX).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 5\n")
    assert "Git LFS pointer" in str(refused(read_checkpoint, tmp_path)[0])


@pytest.mark.parametrize(
    "text", ['\n {"weight_map":{%s}}\n', '{"weight_map":{%s},"metadata":{"total_size":"many"}}', '{"metadata":null,"weight_map":{%s}}']
)
def test_an_index_with_white_space_or_other_metadata_is_read(text: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, UNQUANTIZED)
    (tmp_path / INDEX).write_text(text % ENTRIES)
    assert set(read_checkpoint(tmp_path).shard_of.values()) == {"model.safetensors"}


keys = st.sampled_from(['"a"', '"b"', '"\\u0061"', '"weight_map"', '"metadata"', '"a.safetensors"', '"x \\" y"', '"é"', '"\ud7ff"'])
shards = st.sampled_from(
    ['"m.safetensors"', '"n.safetensors"', '"m.safetensors" ', '"o.safetensors"', '"../m.safetensors"', '""', "5", "null", "{}", '"m"']
)
members = st.lists(st.tuples(keys, shards), max_size=4).map(lambda drawn: "{" + ",".join(f"{key}:{shard}" for key, shard in drawn) + "}")
others = st.one_of(
    members,
    st.sampled_from(
        ["{}", "[]", "null", "5", "1e999", "NaN", "-0", "01", '"\\ud800"', '"x.safetensors"', "[[[]]]", '"\x01"', '{"a":1,"a":2}']
    ),
)
indexes = st.lists(st.tuples(st.sampled_from(['"weight_map"', '"metadata"', '"m"', '"weight\\u005fmap"']), others), max_size=3).map(
    lambda drawn: "{" + ",".join(f"{key}:{value}" for key, value in drawn) + "}"
)


@settings(max_examples=2500, deadline=None, derandomize=True, database=None)
@given(text=indexes, bad=st.sampled_from([b"", b"", b"", b"\xff", b" ", b"\xed\xa0\x80"]), where=st.integers(0, 60))
def test_the_fast_path_of_the_index_has_the_verdict_of_the_strict_one(text: str, bad: bytes, where: int) -> None:
    raw = text.encode()
    raw = raw[:where] + bad + raw[where:]

    def verdict(files: tuple[str, ...]) -> Any:
        try:
            return parse_index(raw, name=INDEX, files=files)
        except Refusal as refusal:
            return [(each.code, each.object, each.found) for each in refusal.violations]

    assert verdict(("m.safetensors", "n.safetensors")) == verdict(())


# No index.


def test_a_complete_numbered_family_needs_no_index(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=3, index=False)
    checkpoint = read_checkpoint(folder)
    assert [shard.name for shard in checkpoint.shards] == [shard_name(number, 3) for number in (1, 2, 3)]
    assert set(checkpoint.tensors) == set(UNQUANTIZED)
    assert checkpoint.index_name == ""
    assert checkpoint.extra_files == ()


def test_a_file_beside_a_complete_numbered_family_is_reported_and_not_read(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2, index=False)
    (folder / "consolidated.safetensors").write_bytes(b"not read, or this would be refused")
    checkpoint = read_checkpoint(folder)
    assert [shard.name for shard in checkpoint.shards] == [FIRST, SECOND]
    assert checkpoint.extra_files == ("consolidated.safetensors",)


def test_an_incomplete_numbered_family_lists_every_missing_number(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=6, index=False)
    for number in (1, 4):
        (folder / shard_name(number, 6)).unlink()
    violation = refused_alone("shards-incomplete", read_checkpoint, folder)
    assert (violation.object, violation.expected, violation.found) == ("model-*-of-6", "6 numbered shards", "number 1, 4 missing")


@pytest.mark.parametrize("extra", ["model-00003-of-00002.safetensors", "model-00000-of-00002.safetensors", "model-1-of-2.safetensors"])
def test_a_number_too_many_is_refused(extra: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2, index=False)
    write_sparse(folder / extra, {"other": ("BF16", (2, 2))})
    assert refused(read_checkpoint, folder)[0].code in ("shards-incomplete", "checkpoint-ambiguous")


AMBIGUOUS = {
    "a file and a numbered family": ["model.safetensors", FIRST, SECOND],
    "a file and a numbered family of another base": [
        "consolidated.safetensors",
        shard_name(1, 2, "consolidated"),
        shard_name(2, 2, "consolidated"),
    ],
    "two canonical files": ["model.safetensors", "diffusion_pytorch_model.safetensors"],
    "two files": ["a.safetensors", "b.safetensors"],
    "two families": [FIRST, SECOND, "other-00001-of-00001.safetensors"],
    "two counts": [FIRST, SECOND, shard_name(1, 3), shard_name(2, 3), shard_name(3, 3)],
}


@pytest.mark.parametrize("names", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_files_that_can_be_read_in_two_ways_are_refused_listing_them(names: list[str], tmp_path: Path) -> None:
    for number, name in enumerate(names):
        write_sparse(tmp_path / name, {f"t{number}": ("BF16", (2, 2))})
    violation = refused_alone("checkpoint-ambiguous", read_checkpoint, tmp_path)
    assert violation.object == str(tmp_path)
    assert all(name in violation.found for name in names)


def test_two_indexes_that_are_not_canonical_are_refused_listing_them(tmp_path: Path) -> None:
    for base in ("a", "b"):
        write_sparse(tmp_path / f"{base}.safetensors", {base: ("BF16", (2, 2))})
        write_index(tmp_path / f"{base}.safetensors.index.json", {base: f"{base}.safetensors"})
    violation = refused_alone("checkpoint-ambiguous", read_checkpoint, tmp_path)
    assert "a.safetensors.index.json" in violation.found
    assert "b.safetensors.index.json" in violation.found


# What the caller points at.


@pytest.mark.parametrize("index", [True, False])
def test_pointing_at_one_numbered_shard_says_that_it_is_one_of_several(index: bool, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, PAIR, config=BLOCKWISE, shards=2, placement={WEIGHT: 1, SCALE: 2}, index=index)
    violation = refused_alone("shards-incomplete", read_checkpoint, folder / FIRST)
    assert (violation.object, violation.found) == (FIRST, "shard 1 of 2 alone")
    assert str(folder) in violation.remedy


def test_pointing_at_the_only_numbered_shard_is_fine(tmp_path: Path) -> None:
    path = write_sparse(tmp_path / "model-00001-of-00001.safetensors", UNQUANTIZED)
    assert set(read_checkpoint(path).tensors) == set(UNQUANTIZED)
    assert set(read_checkpoint(tmp_path).tensors) == set(UNQUANTIZED)


def test_pointing_at_the_index_leads_to_the_folder(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2)
    violations = refused(read_checkpoint, folder / INDEX)
    assert violations[0].object == INDEX
    assert "JSON" in violations[0].found


def test_a_path_that_leads_nowhere_is_said_to(tmp_path: Path) -> None:
    violation = refused_alone("checkpoint-not-found", read_checkpoint, tmp_path / "absent")
    assert violation.object == str(tmp_path / "absent")


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b", "\ud800"])
def test_a_path_that_no_file_can_have_is_a_refusal(path: str, tmp_path: Path) -> None:
    violations = well_formed(inspect(f"{tmp_path}/{path}").violations)
    assert [each.code for each in violations] in (["checkpoint-not-found"], ["file-unreadable"])


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt", "model.gguf", "model.onnx", "tf_model.h5"])
def test_a_folder_with_weights_of_other_kinds_names_them_and_opens_none(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_bytes(b"\x80\x02.")
    (tmp_path / "README.md").write_text("x")
    opened: list[Any] = []
    monkeypatch.setattr(os, "open", lambda *arguments, **_: opened.append(arguments))
    violation = refused_alone("checkpoint-without-weights", read_checkpoint, tmp_path)
    assert not opened
    assert violation.object == str(tmp_path)
    assert name in violation.found
    assert "never opened" in violation.found


def test_an_empty_folder_is_said_to_hold_no_safetensors_file(tmp_path: Path) -> None:
    violation = refused_alone("checkpoint-without-weights", read_checkpoint, tmp_path)
    assert violation.found == "no .safetensors file"


# Hub caches, links: B2-20, B2-21.


def cached(root: Path, tensors: Tensors = UNQUANTIZED, *, shards: int = 2) -> Path:
    """Write a checkpoint as a hub cache lays it out; return the snapshot, whose files are links to blobs named by digests."""
    plain = write_checkpoint(root / "plain", tensors, shards=shards, config={"model_type": "x"})
    (root / "blobs").mkdir()
    snapshot = root / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(plain.iterdir())):
        blob = f"{number:064x}"
        path.rename(root / "blobs" / blob)
        (snapshot / path.name).symlink_to(f"../../blobs/{blob}")
    plain.rmdir()
    return snapshot


@pytest.mark.parametrize("shards", [1, 2])
def test_a_snapshot_of_a_hub_cache_is_read_through_its_links(shards: int, tmp_path: Path) -> None:
    snapshot = cached(tmp_path, shards=shards)
    checkpoint = read_checkpoint(snapshot)
    assert [shard.name for shard in checkpoint.shards] == [shard_name(number + 1, shards) for number in range(shards)]
    assert checkpoint.config == {"model_type": "x"}
    if shards == 1:
        assert set(read_checkpoint(snapshot / "model.safetensors").tensors) == set(UNQUANTIZED)


def test_chains_of_links_linked_folders_and_hard_links_are_read(tmp_path: Path) -> None:
    snapshot = cached(tmp_path)
    first = snapshot / FIRST
    blob = first.resolve()
    first.unlink()
    (tmp_path / "blobs" / "middle").symlink_to(blob.name)
    first.symlink_to("../../blobs/middle")
    second = (snapshot / SECOND).resolve()
    (snapshot / SECOND).unlink()
    os.link(second, snapshot / SECOND)
    (tmp_path / "main").symlink_to("snapshots/0123abcd")
    assert set(read_checkpoint(tmp_path / "main").tensors) == set(UNQUANTIZED)


def test_a_hub_cache_root_is_recognized_and_the_remedy_names_a_snapshot_that_exists(tmp_path: Path) -> None:
    snapshot = cached(tmp_path)
    violation = refused_alone("checkpoint-without-weights", read_checkpoint, tmp_path)
    assert violation.object == str(tmp_path)
    assert "hub cache" in violation.found
    assert "0123abcd" in violation.found
    assert str(snapshot) in violation.remedy


@pytest.mark.parametrize("as_file", [True, False])
def test_a_hub_cache_root_whose_snapshots_are_empty_or_a_file_is_refused(as_file: bool, tmp_path: Path) -> None:
    if as_file:
        (tmp_path / "snapshots").write_text("")
    else:
        (tmp_path / "snapshots").mkdir()
    violation = refused_alone("checkpoint-without-weights", read_checkpoint, tmp_path)
    assert violation.object == str(tmp_path)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("index", [True, False])
def test_a_broken_link_is_told_from_a_missing_file(shards: int, index: bool, tmp_path: Path) -> None:
    snapshot = cached(tmp_path, shards=shards)
    if not index and shards > 1:
        (snapshot / INDEX).unlink()
    broken = snapshot / shard_name(shards, shards)
    blob = broken.resolve()
    blob.rename(f"{blob}.incomplete")
    violation = refused_alone("file-broken-link", read_checkpoint, snapshot)
    assert violation.object == broken.name
    assert f"../../blobs/{blob.name}" in violation.found
    assert "does not exist" in violation.found


@pytest.mark.parametrize(
    ("fault", "code"), [("broken link", "file-broken-link"), ("missing", "index-shard-missing"), ("empty", "file-empty")]
)
def test_a_broken_link_a_missing_shard_and_an_empty_one_have_three_reasons(fault: str, code: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2)
    (folder / SECOND).unlink()
    if fault == "broken link":
        (folder / SECOND).symlink_to("nowhere")
    elif fault == "empty":
        (folder / SECOND).touch()
    assert refused_alone(code, read_checkpoint, folder).object == SECOND


def test_pointing_at_a_broken_link_says_so(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("../../blobs/gone")
    violation = refused_alone("file-broken-link", read_checkpoint, tmp_path / "model.safetensors")
    assert "../../blobs/gone" in violation.found


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to("model.safetensors")
    for source in (tmp_path, tmp_path / "model.safetensors"):
        (violation,) = well_formed(inspect(source).violations)
        assert violation.code in ("file-broken-link", "file-unreadable")
        assert violation.object.endswith("model.safetensors")


@pytest.mark.parametrize("kind", ["broken link", "folder", "pipe", "link to a pipe", "device"])
def test_an_index_that_is_no_file_is_refused_by_name_and_nothing_hangs(kind: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model", UNQUANTIZED)
    index = folder / INDEX
    if kind == "broken link":
        index.symlink_to("nowhere")
    elif kind == "folder":
        index.mkdir()
    elif kind == "pipe":
        os.mkfifo(index)
    elif kind == "device":
        index.symlink_to("/dev/zero")
    else:
        os.mkfifo(tmp_path / "pipe")
        index.symlink_to("../pipe")
    with within(5):
        violation = refused_alone("file-broken-link" if kind == "broken link" else "file-unreadable", read_checkpoint, folder)
    assert violation.object == INDEX


def test_a_shard_that_is_a_folder_is_refused_with_and_without_an_index(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, UNQUANTIZED, shards=2)
    (folder / SECOND).unlink()
    (folder / SECOND).mkdir()
    for _ in range(2):
        violation = refused_alone("file-unreadable", read_checkpoint, folder)
        assert (violation.object, violation.found) == (SECOND, "a folder")
        (folder / INDEX).unlink(missing_ok=True)


def test_file_names_that_are_not_utf_8_can_be_shown(tmp_path: Path) -> None:
    for name in (b"a\xff.safetensors", b"b\xff.safetensors"):
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).write_bytes(b"")
    well_formed(inspect(tmp_path).violations)
    Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), b"b\xff.safetensors"))).unlink()
    well_formed(inspect(tmp_path).violations)


def test_a_sparse_payload_is_as_good_as_a_full_one(tmp_path: Path) -> None:
    big: Tensors = {"big": ("BF16", (65536, 131072))}
    path = write_sparse(tmp_path / "model.safetensors", big)
    assert path.stat().st_size > payload_size(big) == 16 << 30
    assert set(read_checkpoint(tmp_path).tensors) == {"big"}
