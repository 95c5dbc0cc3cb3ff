"""An inspection is proved, refused for good, or unjudged: what could not be read is no verdict. And every tensor is accounted for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tensorhub_contracts import inspect
from tests.support.checkpoint_files import size_in_bytes, write_checkpoint
from tests.support.cli import tensorhub
from tests.support.trees import BLOCKWISE, Tree, bf16, fp8_config, judge, stacked_unit, unit

TREE: Tree = {
    **unit("layers.0.up", 256, 384),
    **unit("layers.1.up", 130, 200, scale="BF16"),
    **stacked_unit("experts.gate_up_proj", 3, 128, 256),
    **bf16("norm.weight", 384),
    **bf16("lm_head.weight", 16, 384),
    "layers.0.attn.k_scale": ("F32", ()),
    "layers.0.attn.v_scale": ("BF16", (8,)),
    "position_ids": ("I64", (1, 77)),
    "mask": ("BOOL", (77, 77)),
}


def rows(folder: Path, tensors: Tree, contract: str | None = None) -> dict[str, tuple[int, int]]:
    """Return the account of a tree, after adding it up here."""
    inspection = judge(folder, tensors, fp8_config(), contract=contract)
    account = inspection.account
    assert account is not None
    assert (sum(row.tensors for row in account.rows), sum(row.bytes for row in account.rows)) == (account.tensors, account.bytes)
    assert account.tensors == len(tensors)
    assert account.bytes == sum(size_in_bytes(*entry) for entry in tensors.values())
    return {row.kind: (row.tensors, row.bytes) for row in account.rows}


def test_the_account_of_a_sound_tree(tmp_path: Path) -> None:
    weights = 256 * 384 + 130 * 200 + 3 * 128 * 256
    scales = 4 * 2 * 3 + 2 * 2 * 2 + 4 * 3 * 1 * 2
    assert rows(tmp_path, TREE) == {
        "weight": (3, weights),
        "sidecar": (3, scales),
        "unquantized": (2, 2 * 384 + 2 * 16 * 384),
        "cache-scale": (2, 4 + 16),
        "bookkeeping": (2, 8 * 77 + 77 * 77),
        "refused": (0, 0),
    }


FAULTS: dict[str, tuple[Tree, int, int]] = {
    "a unit of another grid, with its scale": (
        {"b.weight": ("F8_E4M3", (128, 128)), "b.weight_scale_inv": ("F32", (2, 1))},
        2,
        128 * 128 + 8,
    ),
    "a scale without a weight": ({"b.weight_scale_inv": ("F32", (2, 1))}, 1, 8),
    "integers": ({"b.weight": ("I8", (64, 64))}, 1, 64 * 64),
    "a scale of an unknown name": ({"layers.0.up.act_scale": ("F32", ())}, 1, 4),
    "a matrix of 64 bits": ({"b.weight": ("F64", (4, 4))}, 1, 128),
    "a cache scale that is none": ({"layers.1.attn.k_scale": ("U8", (64, 64))}, 1, 64 * 64),
}


@pytest.mark.parametrize(("more", "tensors", "size"), FAULTS.values(), ids=FAULTS)
def test_what_is_refused_is_counted_as_that(more: Tree, tensors: int, size: int, tmp_path: Path) -> None:
    found, sound = rows(tmp_path, {**TREE, **more}), rows(tmp_path, TREE)
    assert found.pop("refused") == (tensors, size)
    sound.pop("refused")
    assert found == sound


def test_the_report_has_the_account(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tree", TREE, config=fp8_config())
    (report,) = json.loads(tensorhub("inspect", folder, "--output", "json").out)["inspections"]
    assert report["account"]["tensors"] == len(TREE)
    assert {row["kind"]: row["tensors"] for row in report["account"]["rows"]}["weight"] == 3
    assert (report["state"], report["values_read"]) == ("proved", [])
    assert "account   weight 3 (" in tensorhub("inspect", folder).out


def test_what_could_not_be_read_is_unjudged(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tree", unit("a", 128, 128), config=fp8_config())
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    inspection = inspect(folder)
    assert (inspection.state, inspection.contract) == ("unjudged", None)
    run = tensorhub("inspect", folder, "--output", "json")
    assert run.code == 4
    assert json.loads(run.out)["inspections"][0]["state"] == "unjudged"
    assert "UNJUDGED" in tensorhub("inspect", folder).out
    assert tensorhub("artifact", folder).code == 4


def test_a_fault_that_was_seen_refuses_whatever_else_could_not_be_read(tmp_path: Path) -> None:
    tensors = {**unit("a", 128, 128), **unit("b", 128, 128)}
    placement = {name: 1 if name.startswith("a") else 2 for name in tensors}
    folder = write_checkpoint(tmp_path / "tree", tensors, config=fp8_config(), shards=2, placement=placement)
    first, second = sorted(folder.glob("*.safetensors"))
    second.unlink()
    os.mkfifo(second)
    assert inspect(folder).state == "unjudged"
    first.write_bytes(first.read_bytes()[:-1])
    assert inspect(folder).state == "refused"
    assert tensorhub("inspect", folder).code == 1
    assert inspect(write_checkpoint(tmp_path / "good", tensors, config=fp8_config())).contract == BLOCKWISE
