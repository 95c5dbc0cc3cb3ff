"""Inspections without files: of headers that are only planned, of a part of a checkpoint, and of one that was renamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tensorhub_decoders.converting.shard_writing import WrittenTensor, plan_file
from tensorhub_decoders.hf_fp8_blockwise import decode_hf_fp8_blockwise

from tensorhub_contracts import Inspection, inspect, inspect_planned
from tensorhub_contracts.checkpoints.header import Header, parse_header
from tensorhub_contracts.inspection.derived import part_of, renamed
from tests.support.conversions import BLOCKWISE, bits, done, save, small_model


@pytest.fixture(scope="module")
def blockwise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of three shards: units with scales in other shards, a matrix that is not quantized, norms, a counter."""
    folder = tmp_path_factory.mktemp("trees")
    tensors = list(small_model().items())
    save(folder / "plain", *(dict(tensors[place::3]) for place in range(3)), config={})
    done("produce", folder / "plain", folder / "made", "--to", BLOCKWISE, "--skip", "embed.weight")
    return folder / "made"


def inspect_unread(folder: Path) -> Inspection:
    """The inspection of the same shards in a folder without a configuration."""
    bare = folder.with_name("bare")
    if not bare.exists():
        bare.mkdir()
        for path in (*folder.glob("*.safetensors"), *folder.glob("*.index.json")):
            (bare / path.name).symlink_to(path)
    return inspect(bare)


def planned(inspection: Inspection, **changes: Any) -> Inspection:
    checkpoint = inspection.checkpoint
    assert checkpoint is not None
    words: dict[str, Any] = {"path": checkpoint.path, "index_name": checkpoint.index_name}
    return inspect_planned(checkpoint.headers, checkpoint.config, **{**words, **changes})


def test_headers_that_are_planned_are_judged_as_those_of_files(blockwise: Path) -> None:
    found = inspect(blockwise)
    again = planned(found)
    assert (again.contract, again.digest, again.proved, again.units_of) == (BLOCKWISE, found.digest, found.proved, found.units_of)
    assert again.checkpoint is not None
    assert found.checkpoint is not None
    assert again.checkpoint.headers_digest == found.checkpoint.headers_digest
    assert planned(found, path="nowhere", component="vae").path == "nowhere"


def test_what_is_not_declared_or_twice_there_is_not_proved(blockwise: Path) -> None:
    checkpoint = inspect(blockwise).checkpoint
    assert checkpoint is not None
    undeclared = inspect_planned(checkpoint.headers, {"quantization_config": None}, path="x")
    assert undeclared.contract is None
    assert undeclared.codes == inspect_unread(blockwise).codes

    def header(name: str) -> Header:
        plan = plan_file([WrittenTensor(name, "BF16", (2, 2))], {})
        return parse_header(plan.header, file_size=plan.size, name="made")

    assert inspect_planned({"a": header("x.weight"), "b": header("y.weight")}, {}, path="x").contract == "plain.bf16@1"
    with pytest.raises(ValueError, match=r"x\.weight: in a and in b"):
        inspect_planned({"a": header("x.weight"), "b": header("x.weight")}, {}, path="x")


def test_a_part_holds_whole_units_and_decodes_to_the_same_bits(blockwise: Path) -> None:
    whole = inspect(blockwise).require()
    names = ["layers.1.up.weight", "layers.0.experts.gate_up", "norm.weight"]
    part = part_of(whole, names)
    assert part.checkpoint is not None
    assert whole.checkpoint is not None
    assert set(part.checkpoint.shard_of) == {*names, f"{names[0]}_scale_inv", f"{names[1]}_scale_inv"}
    assert set(part.unit_tensors) == set(names[:2])
    assert part.sidecars == {f"{name}_scale_inv" for name in names[:2]}
    assert set(part.checkpoint.tensors) == set(part.checkpoint.shard_of)
    assert part.groups is not None
    assert set(part.groups.unquantized) == {"norm.weight"}
    words = {"lane": "fp8-w8a16+eager", "dtype": "BF16"}
    everything = {name: tensor for name, tensor, _ in decode_hf_fp8_blockwise(whole, **words)}
    decoded = {name: tensor for name, tensor, _ in decode_hf_fp8_blockwise(part, **words)}
    assert set(decoded) == set(names)
    assert all(torch.equal(bits(tensor), bits(everything[name])) for name, tensor in decoded.items())
    with pytest.raises(KeyError):
        part_of(whole, ["layers.9.up.weight"])


def test_a_part_does_not_change_the_whole(blockwise: Path) -> None:
    whole = inspect(blockwise).require()
    before = (whole.unit_count, len(whole.sidecars), whole.checkpoint and whole.checkpoint.tensor_count)
    part = part_of(whole, ["norm.weight"])
    assert (part.unit_count, part.sidecars) == (0, frozenset())
    assert (whole.unit_count, len(whole.sidecars), whole.checkpoint and whole.checkpoint.tensor_count) == before


def test_a_renamed_checkpoint_is_read_where_it_is(blockwise: Path, tmp_path: Path) -> None:
    whole = inspect(blockwise).require()
    link = tmp_path / "elsewhere"
    link.symlink_to(blockwise)
    moved = renamed(whole, str(link))
    assert moved.checkpoint is not None
    assert (moved.path, moved.checkpoint.path, moved.contract) == (str(link), str(link), BLOCKWISE)
    assert (moved.unit_tensors, moved.notes) == (whole.unit_tensors, whole.notes)
