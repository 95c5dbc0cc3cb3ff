"""A remedy that names a command names one that exists and does what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")  # what is promised is done

from tensorhub_contracts import Demand, Refusal, derive_execution_lanes, inspect, satisfies
from tensorhub_contracts.registry.registry import load_registry
from tensorhub_contracts.testing.sample_units import sample_units, unquantized_tensors, write_tree
from tests.support.cli import tensorhub

PLAIN = ["plain.bf16@1", "plain.f16@1", "plain.f32@1"]
QUANTIZED = ["hf.fp8-blockwise@1", "cozy.fp8-rowwise@1", "cozy.fp8-storage@1"]


def sample(folder: Path, handle: str) -> Path:
    contract = load_registry().contracts[handle]
    tensors = unquantized_tensors(contract)
    for unit in sample_units(contract):
        tensors |= {unit.names[role]: tensor for role, tensor in unit.tensors.items()}
    return write_tree(folder, contract, tensors)


def remedy(folder: Path, accepted: str, contract: str | None = None) -> str:
    with pytest.raises(Refusal) as caught:
        satisfies(inspect(folder, contract=contract), derive_execution_lanes(), Demand(accept={"*": (accepted,)}))
    assert caught.value.codes == ("contract-not-accepted",)
    return caught.value.violations[0].remedy


@pytest.mark.parametrize("accepted", QUANTIZED)
@pytest.mark.parametrize("source", PLAIN)
def test_what_can_be_produced_is_said_and_can_be(source: str, accepted: str, tmp_path: Path) -> None:
    folder = sample(tmp_path / "source", source)
    command = re.search(r"`tensorhub (produce) SRC DST --to (\S+)`", remedy(folder, accepted))
    assert command is not None
    assert command[2] == accepted
    skipped = ("--skip", "*") if accepted == "cozy.fp8-rowwise@1" else ()  # 19 columns are no multiple of 16
    done = tensorhub("produce", folder, tmp_path / "made", "--to", command[2], *skipped)
    assert done.code in ((0, 1) if skipped else (0,)), done.err
    assert "No such command" not in done.err


@pytest.mark.parametrize(("source", "accepted"), [(QUANTIZED[0], QUANTIZED[1]), (QUANTIZED[1], QUANTIZED[0]), (PLAIN[0], PLAIN[1])])
def test_what_cannot_be_made_is_not_promised(source: str, accepted: str, tmp_path: Path) -> None:
    assert "tensorhub" not in remedy(sample(tmp_path, source), accepted, contract=source)


@pytest.mark.parametrize("accepted", PLAIN)
@pytest.mark.parametrize("source", QUANTIZED)
def test_what_can_be_decoded_is_said(source: str, accepted: str, tmp_path: Path) -> None:
    dtype = accepted.partition(".")[2].partition("@")[0]
    assert f"`tensorhub decode SRC DST --to plain.{dtype}@1`" in remedy(sample(tmp_path, source), accepted, contract=source)
    assert dtype in tensorhub("decode", "--help").out


def test_the_remedy_for_a_component_of_a_pipeline_names_it_and_works(tmp_path: Path) -> None:
    pipeline = tmp_path / "pipeline"
    pipeline.mkdir()
    index = {"_class_name": "P", "transformer": ["diffusers", "T"], "vae": ["diffusers", "V"]}
    (pipeline / "model_index.json").write_text(json.dumps(index))
    for component in ("transformer", "vae"):
        sample(pipeline / component, "plain.bf16@1")
    demand = Demand(accept={"*": ("cozy.fp8-storage@1",)})
    with pytest.raises(Refusal) as caught:
        satisfies(inspect(pipeline, "transformer"), derive_execution_lanes(), demand)
    said = caught.value.violations[0].remedy
    command = re.search(r"`tensorhub (produce) SRC DST (--to \S+ --component \S+)`", said)
    assert command is not None, said
    done = tensorhub("produce", pipeline, tmp_path / "made", *command[2].split())
    assert done.code == 0, done.err
    assert inspect(tmp_path / "made", "transformer").require().contract == "cozy.fp8-storage@1"
