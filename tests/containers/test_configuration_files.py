"""The files that declare a layout: broken, in two places, of the wrong type, too large, or not files at all."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tensorhub_contracts import inspect
from tensorhub_contracts.checkpoints.read import read_checkpoint
from tests.support.checkpoint_files import Tensors, write_checkpoint
from tests.support.refusals import findings, refused, refused_alone, within
from tests.support.system_calls import bytes_read, needs_proc

FP8: Tensors = {"layers.0.q_proj.weight": ("F8_E4M3", (256, 384)), "layers.0.q_proj.weight_scale_inv": ("F32", (2, 3))}
UNQUANTIZED: Tensors = {"layers.0.q_proj.weight": ("BF16", (256, 384))}
BLOCKWISE: dict[str, Any] = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
HANDLE = "hf.fp8-blockwise@1"


def written(folder: Path, tensors: Tensors = FP8, **files: Any) -> Path:
    """Write a checkpoint and JSON files; a file's value is an object, or its bytes as they are to be."""
    write_checkpoint(folder, tensors)
    for name, content in files.items():
        (folder / f"{name}.json").write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


# Where the declaration stands: B1-28.


def test_a_declaration_at_the_top_level_is_read(tmp_path: Path) -> None:
    folder = written(tmp_path, config={"quantization_config": BLOCKWISE})
    assert inspect(folder).contract == HANDLE
    assert [source.where for source in read_checkpoint(folder).declarations] == ["config.json: quantization_config"]


def test_a_declaration_under_text_config_alone_is_read(tmp_path: Path) -> None:
    folder = written(tmp_path, config={"text_config": {"quantization_config": BLOCKWISE}})
    assert inspect(folder).contract == HANDLE
    assert [source.where for source in read_checkpoint(folder).declarations] == ["config.json: text_config.quantization_config"]


def test_two_equal_declarations_agree(tmp_path: Path) -> None:
    folder = written(tmp_path, config={"quantization_config": BLOCKWISE, "text_config": {"quantization_config": BLOCKWISE}})
    assert inspect(folder).contract == HANDLE
    assert len(read_checkpoint(folder).declarations) == 2


def test_the_order_of_keys_makes_no_difference_between_declarations(tmp_path: Path) -> None:
    reordered = dict(reversed(BLOCKWISE.items()))
    folder = written(tmp_path, config={"quantization_config": BLOCKWISE, "text_config": {"quantization_config": reordered}})
    assert inspect(folder).contract == HANDLE


@pytest.mark.parametrize(
    "change",
    [
        {"weight_block_size": [64, 128]},
        {"activation_scheme": "static"},
        {"fmt": "e5m2"},
        {"quant_method": "awq"},
        {"scale_fmt": "ue8m0"},  # both declare the contract, each for itself
    ],
)
@pytest.mark.parametrize("outer", [True, False])
def test_two_declarations_that_differ_are_refused_naming_both(change: dict[str, Any], outer: bool, tmp_path: Path) -> None:
    one, other = (BLOCKWISE | change, BLOCKWISE) if outer else (BLOCKWISE, BLOCKWISE | change)
    folder = written(tmp_path, config={"quantization_config": one, "text_config": {"quantization_config": other}})
    inspection = inspect(folder)
    assert inspection.contract is None
    (conflict,) = (each for each in inspection.violations if each.code == "declaration-conflict")
    assert "config.json: quantization_config" in conflict.found
    assert "config.json: text_config.quantization_config" in conflict.found


@pytest.mark.parametrize(
    "config", [None, {}, {"quantization_config": None}, {"text_config": {}}, {"text_config": {"quantization_config": None}}]
)
def test_no_declaration_is_refused_and_the_likeness_of_the_bytes_is_reported(config: Any, tmp_path: Path) -> None:
    folder = written(tmp_path, **({} if config is None else {"config": config}))
    inspection = inspect(folder)
    assert inspection.contract is None
    assert "declaration-missing" in inspection.codes
    assert HANDLE in inspection.resembles


def test_a_declaration_beside_a_single_file_counts(tmp_path: Path) -> None:
    folder = written(tmp_path, config={"quantization_config": BLOCKWISE})
    assert inspect(folder / "model.safetensors").contract == HANDLE


@pytest.mark.parametrize(("name", "kind"), [("hf_quant_config", "hf_quant_config"), ("params", "params")])
def test_the_declarations_of_other_producers_are_read(name: str, kind: str, tmp_path: Path) -> None:
    content = {"quant_algo": "FP8", "qformat_weight": "fp8_e4m3"}
    folder = written(tmp_path, **{name: {"producer": {"name": "x"}, "quantization": content}})
    (source,) = read_checkpoint(folder).declarations
    assert (source.where, source.kind, dict(source.content)) == (f"{name}.json: quantization", kind, content)


def test_a_quantization_file_that_contradicts_the_configuration_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, config={"quantization_config": BLOCKWISE}, hf_quant_config={"quantization": {"quant_algo": "NVFP4"}})
    inspection = inspect(folder)
    assert inspection.contract is None
    (conflict,) = (each for each in inspection.violations if each.code == "declaration-conflict")
    assert "hf_quant_config.json: quantization" in conflict.found
    assert "config.json: quantization_config" in conflict.found


@pytest.mark.parametrize("name", ["params", "hf_quant_config"])
def test_a_file_of_that_name_without_a_quantization_declares_nothing(name: str, tmp_path: Path) -> None:
    folder = written(tmp_path, config={"quantization_config": BLOCKWISE}, **{name: {"dim": 4096}})
    assert inspect(folder).contract == HANDLE


# Broken files.

BROKEN = {
    "cut off": (b'{"quantization_config": {', "at character"),
    "empty": (b"", ""),
    "a list": (b"[]", "list"),
    "null": (b"null", ""),
    "a number": (b"5", "int"),
    "byte-order mark": (b'\xef\xbb\xbf{"a": 1}', "byte-order mark"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
    "not UTF-8": (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
    "5000 digits": (b'{"a": ' + b"9" * 5000 + b"}", "a number of more than 40 digits"),
    "200000 brackets": (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
    "a comment": (b'{"a": 1} // no', "at character"),
    "trailing NULs": (b'{"a": 1}\0\0', "at character"),
    "an HTML page": (b"<!DOCTYPE html>", ""),
}


@pytest.mark.parametrize("tensors", [UNQUANTIZED, FP8], ids=["dense", "FP8"])
@pytest.mark.parametrize("name", ["config", "hf_quant_config", "params"])
@pytest.mark.parametrize(("text", "found"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused_by_name_and_never_counts_as_absent(
    text: bytes, found: str, name: str, tensors: Tensors, tmp_path: Path
) -> None:
    violation = refused_alone("config-json", read_checkpoint, written(tmp_path, tensors, **{name: text}))
    assert (violation.object, violation.shard) == (f"{name}.json", str(tmp_path / f"{name}.json"))
    assert found in violation.found


def test_every_broken_file_is_listed(tmp_path: Path) -> None:
    folder = written(tmp_path, config=b"{", hf_quant_config=b"[]", params={"quantization": 5})
    assert {(each.code, each.object) for each in refused(read_checkpoint, folder)} == {
        ("config-json", "config.json"),
        ("config-json", "hf_quant_config.json"),
        ("declaration-invalid", "params.json: quantization"),
    }


@pytest.mark.parametrize("value", [[], "fp8", 5, True, False, 0, 1.5, [BLOCKWISE]])
@pytest.mark.parametrize("nested", [True, False])
def test_a_declaration_that_is_no_object_is_refused_showing_what_it_is(value: Any, nested: bool, tmp_path: Path) -> None:
    config = {"text_config": {"quantization_config": value}} if nested else {"quantization_config": value}
    violation = refused_alone("declaration-invalid", read_checkpoint, written(tmp_path, config=config))
    assert violation.object == f"config.json: {'text_config.' if nested else ''}quantization_config"
    assert violation.expected == "an object"
    assert ascii(value)[:20] in violation.found or json.dumps(value)[:20] in violation.found


OBJECT = json.dumps(BLOCKWISE)
REPEATED = {
    "a key of the declaration": (
        f'{{"quantization_config": {OBJECT[:-1]}, "quant_method": "fp8"}}}}',
        "config.json: quantization_config: quant_method",
    ),
    "a key, once escaped": (
        f'{{"quantization_config": {OBJECT[:-1]}, "quant\\u005fmethod": "awq"}}}}',
        "config.json: quantization_config: quant_method",
    ),
    "a key below the declaration": (
        f'{{"quantization_config": {OBJECT[:-1]}, "config_groups": {{"g": {{"a": 1, "a": 2}}}}}}}}',
        "config.json: quantization_config: a",
    ),
    "the declaration itself": (
        f'{{"quantization_config": {OBJECT}, "quantization_config": {OBJECT}}}',
        "config.json: quantization_config: quantization_config",
    ),
    "the declaration, then null": (
        f'{{"quantization_config": {OBJECT}, "quantization_config": null}}',
        "config.json: quantization_config: quantization_config",
    ),
    "text_config": (
        f'{{"text_config": {{}}, "text_config": {{"quantization_config": {OBJECT}}}}}',
        "config.json: text_config.quantization_config: text_config",
    ),
    "text_config, then one without the declaration": (
        f'{{"text_config": {{"quantization_config": {OBJECT}}}, "text_config": {{}}}}',
        "config.json: text_config.quantization_config: text_config",
    ),
}


@pytest.mark.parametrize(("text", "object_"), REPEATED.values(), ids=REPEATED)
def test_a_key_that_stands_twice_on_the_way_to_the_declaration_or_in_it_is_refused(text: str, object_: str, tmp_path: Path) -> None:
    violation = refused_alone("declaration-invalid", read_checkpoint, written(tmp_path, UNQUANTIZED, config=text.encode()))
    assert violation.object == object_
    assert (violation.expected, violation.found) == ("each key once", "the key more than once")


# What must pass.

HARMLESS = {
    "Infinity": b'"time_step_limit": [0.0, Infinity]',
    "NaN and -Infinity": b'"a": NaN, "b": {"c": -Infinity}',
    "a large float": b'"rope_theta": 1e7, "x": 1e400',
    "text_config is null": b'"text_config": null',
    "text_config is a list": b'"text_config": []',
    "unknown keys": b'"architectures": ["X"], "auto_map": {}',
    "a deep object": b'"a": ' + b"[" * 50 + b"]" * 50,
    "other languages": '"_name": "模型", "😀": "é"'.encode(),
    "escaped surrogate pair": rb'"a": "\ud83d\ude00"',
    "a lone surrogate": rb'"a": "\ud800"',
}


@pytest.mark.parametrize("text", HARMLESS.values(), ids=HARMLESS)
def test_what_is_odd_outside_the_declaration_changes_nothing(text: bytes, tmp_path: Path) -> None:
    config = b"\n{" + text + b', "quantization_config": ' + OBJECT.encode() + b"}\n\n"
    inspection = inspect(written(tmp_path, config=config))
    assert inspection.contract == HANDLE, findings(inspection)


# Not a file, or too large a one.


@pytest.mark.parametrize("tensors", [UNQUANTIZED, FP8], ids=["dense", "FP8"])
@pytest.mark.parametrize("name", ["config.json", "hf_quant_config.json", "params.json"])
@pytest.mark.parametrize("kind", ["broken link", "folder", "pipe", "link to a pipe", "link to a device"])
def test_a_configuration_that_is_no_file_is_refused_by_name_and_nothing_hangs(
    kind: str, name: str, tensors: Tensors, tmp_path: Path
) -> None:
    folder = written(tmp_path / "model", tensors)
    match kind:
        case "broken link":
            (folder / name).symlink_to("../../blobs/gone")
        case "folder":
            (folder / name).mkdir()
        case "pipe":
            os.mkfifo(folder / name)
        case "link to a pipe":
            os.mkfifo(tmp_path / "pipe")
            (folder / name).symlink_to("../pipe")
        case _:
            (folder / name).symlink_to("/dev/zero")
    code = "file-broken-link" if kind == "broken link" else "file-unreadable"
    with within(2):
        violation = refused_alone(code, read_checkpoint, folder)
    assert violation.object == name


def test_a_configuration_that_is_a_link_into_a_cache_is_read(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", config={"quantization_config": BLOCKWISE})
    (folder / "config.json").rename(tmp_path / "blob")
    (folder / "config.json").symlink_to("../blob")
    assert inspect(folder).contract == HANDLE


@needs_proc
@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
@pytest.mark.parametrize("size", [300 << 20, 8 << 30], ids=["300 MiB", "8 GiB"])
def test_a_huge_json_file_is_refused_by_its_size_before_it_is_read(size: int, name: str, tmp_path: Path) -> None:
    folder = written(tmp_path, UNQUANTIZED)
    (folder / name).write_bytes(b'{"a": "')
    os.truncate(folder / name, size)
    violation = refused_alone("file-unreadable", read_checkpoint, folder)
    assert violation.object == name
    assert "at most" in violation.expected
    tracemalloc.start()
    try:
        with bytes_read() as read:
            refused(read_checkpoint, folder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000
    assert read.count < 1_000_000


def test_a_file_that_cannot_be_read_hides_no_fault_of_those_after_it(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, {"a.weight": ("BF16", (8, 8))})
    for name in ("config.json", "hf_quant_config.json", "params.json"):
        (folder / name).mkdir()
    violations = refused(read_checkpoint, folder)
    assert [(each.code, each.object) for each in violations] == [
        ("file-unreadable", name) for name in ("config.json", "hf_quant_config.json", "params.json")
    ]


@pytest.mark.parametrize("inside", ['[{"a": 1, "a": 1}]', '{"b": [[{"a": 1, "a": 1}], 2]}', '{"a": 1, "a": 1}'])
def test_a_key_that_stands_twice_anywhere_in_a_declaration_is_refused(tmp_path: Path, inside: str) -> None:
    text = '{"quantization_config": {"quant_method": "fp8", "more": %s}}'
    folder = written(tmp_path, config=(text % inside).encode())
    violation = refused_alone("declaration-invalid", read_checkpoint, folder)
    assert violation.object == "config.json: quantization_config: a"
    assert read_checkpoint(written(tmp_path, config=(text % inside.replace('"a": 1, ', "")).encode())).declarations


def test_an_error_without_words_is_told_by_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path)

    def fail(*arguments: object) -> int:
        raise InterruptedError

    monkeypatch.setattr(os, "open", fail)
    violations = refused(read_checkpoint, folder)
    assert [(each.code, each.found) for each in violations] == [("file-unreadable", "InterruptedError")]
