"""Multi-token prediction in files of its own is part of the checkpoint: judged with it, with and without an index."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensorhub_contracts import Inspection, inspect
from tensorhub_contracts.checkpoints.read import read_checkpoint
from tests.support.checkpoint_files import shard_name, write_checkpoint, write_index, write_sparse
from tests.support.refusals import refused_alone
from tests.support.trees import BLOCKWISE, Fault, Tree, assert_accepted, assert_refused, bf16, fp8_config, noted, unit

MTP = "mtp.safetensors"
BODY: Tree = {**unit("model.layers.0.q_proj", 256, 384), **bf16("lm_head.weight", 512, 256)}
GOOD: Tree = unit("mtp.layers.0.q_proj", 256, 256)
BAD: Tree = {"mtp.layers.0.q_proj.weight": ("F8_E4M3", (256, 256)), "mtp.layers.0.q_proj.weight_scale_inv": ("F32", (4, 4))}

#: Shards of the model, and whether there is an index.
MODELS = {"one file": (1, False), "an index": (2, True), "numbered, no index": (2, False)}


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model without its file of multi-token prediction."""
    shards, index = request.param
    return write_checkpoint(tmp_path / "tree", BODY, config=fp8_config(), shards=shards, index=index)


def with_mtp(model: Path, tensors: Tree, name: str = MTP) -> Inspection:
    write_sparse(model / name, tensors)
    return inspect(model)


def test_its_units_are_proved_with_the_others(model: Path) -> None:
    inspection = with_mtp(model, GOOD)
    assert_accepted(inspection, BLOCKWISE, {"model.layers.0.q_proj.weight": (2, 3), "mtp.layers.0.q_proj.weight": (2, 2)})
    assert inspection.checkpoint is not None
    assert inspection.checkpoint.shard_of["mtp.layers.0.q_proj.weight"] == MTP
    assert MTP in inspection.checkpoint.headers
    assert inspection.checkpoint.extra_files == ()
    assert not noted(inspection, "not part of the checkpoint")


def test_the_index_is_said_to_agree_on_what_it_lists(tmp_path: Path) -> None:
    inspection = with_mtp(write_checkpoint(tmp_path / "tree", BODY, config=fp8_config(), shards=2), GOOD)
    assert any("agree on all 3 tensors" in line for line in inspection.proved)
    assert noted(inspection, "not in the index", MTP)


def test_a_bad_grid_in_it_refuses(model: Path) -> None:
    assert_refused(with_mtp(model, BAD), Fault("scale-grid", "mtp.layers.0.q_proj.weight_scale_inv", shard=MTP))


def test_a_scale_that_it_lacks_is_missing(model: Path) -> None:
    lacking = {name: geometry for name, geometry in GOOD.items() if not name.endswith("scale_inv")}
    assert_refused(with_mtp(model, lacking), Fault("scale-missing", "mtp.layers.0.q_proj.weight"))


def test_a_tensor_that_both_hold_is_held_twice(model: Path) -> None:
    inspection = with_mtp(model, {**GOOD, **bf16("lm_head.weight", 512, 256)})
    assert_refused(inspection, Fault("tensor-duplicate", "lm_head.weight", found=MTP))


def test_several_files_of_it_are_read(model: Path) -> None:
    write_sparse(model / "mtp-extra.safetensors", unit("mtp.layers.1.q_proj", 256, 256))
    assert_accepted(with_mtp(model, GOOD), BLOCKWISE, 3)
    write_sparse(model / "mtp-extra.safetensors", GOOD)
    assert set(inspect(model).codes) == {"tensor-duplicate"}


def test_numbered_files_of_it_are_read_whole_or_not_at_all(model: Path) -> None:
    names = [shard_name(number, 2, "mtp") for number in (1, 2)]
    write_sparse(model / names[1], unit("mtp.layers.1.q_proj", 256, 256))
    assert refused_alone("shards-incomplete", read_checkpoint, model).object == "mtp-*-of-2"
    assert_accepted(with_mtp(model, GOOD, names[0]), BLOCKWISE, 3)


def test_an_index_of_its_own_is_not_that_of_the_model(model: Path) -> None:
    write_index(model / "mtp.safetensors.index.json", dict.fromkeys(GOOD, MTP))
    inspection = with_mtp(model, GOOD)
    assert_accepted(inspection, BLOCKWISE, 2)
    assert noted(inspection, "not part of the checkpoint", "mtp.safetensors.index.json")


def test_one_that_the_index_lists_is_a_shard_like_others(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, BODY, config=fp8_config(), shards=2)
    where = folder / "model.safetensors.index.json"
    weight_map = json.loads(where.read_text())["weight_map"]
    write_index(where, {**weight_map, **dict.fromkeys(GOOD, MTP)})
    inspection = with_mtp(folder, GOOD)
    assert_accepted(inspection, BLOCKWISE, 2)
    assert any("agree on all 5 tensors" in line for line in inspection.proved)
    assert not noted(inspection, "not in the index")
    write_sparse(folder / MTP, {**GOOD, **bf16("more.weight", 4, 4)})
    assert inspect(folder).codes == ("index-tensor-unlisted",)


def test_a_damaged_one_is_refused(model: Path) -> None:
    (model / MTP).write_bytes(b"")
    assert inspect(model).codes == ("file-empty",)


def test_an_index_that_is_wrong_is_refused_beside_it(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, BODY, config=fp8_config(), shards=2)
    where = folder / "model.safetensors.index.json"
    weight_map = json.loads(where.read_text())["weight_map"]
    write_index(where, {**weight_map, "gone.weight": shard_name(1, 2)})
    assert_refused(with_mtp(folder, GOOD), Fault("index-tensor-missing", "gone.weight"))


def test_alone_it_is_a_checkpoint_like_others(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, {}, config=fp8_config())
    (folder / "model.safetensors").unlink()
    assert_accepted(with_mtp(folder, GOOD), BLOCKWISE, 1)


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "model.mtp.safetensors", "xmtp.safetensors", "consolidated.safetensors"])
def test_files_of_other_names_are_not_read(name: str, tmp_path: Path) -> None:
    inspection = with_mtp(write_checkpoint(tmp_path, BODY, config=fp8_config()), BAD, name)
    assert_accepted(inspection, BLOCKWISE, 1)
    assert noted(inspection, "not part of the checkpoint and not read", name)


def test_a_file_that_is_named_is_read_alone(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, BODY, config=fp8_config())
    write_sparse(folder / MTP, BAD)
    assert_accepted(inspect(folder / "model.safetensors"), BLOCKWISE, 1)
