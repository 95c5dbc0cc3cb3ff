"""A remedy that names a command names one that exists and does what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")  # what is promised is done

from tensorhub_contracts import Demand, Refusal, derive_execution_lanes, inspect, satisfies
from tensorhub_contracts.hub.artifact import Artifact, ComponentRecord
from tensorhub_contracts.lanes.documents import read_lanes
from tensorhub_contracts.registry.registry import load_registry
from tensorhub_contracts.testing.sample_units import sample_units, unquantized_tensors, write_tree
from tests.support.cli import tensorhub
from tests.support.hub_records import entry, lanes_document

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


def not_declared(artifact: str, *read: str) -> str:
    """Return what is said of an artifact in one contract to an image that reads others."""
    image = read_lanes(json.dumps(lanes_document(*(entry(each, f"m:D{place}", ["x-w8a8+eager"]) for place, each in enumerate(read)))))
    record = ComponentRecord("vae", artifact, "sha256:" + "0" * 64, "sha256:" + "1" * 64, 1, 1, {}, ())
    with pytest.raises(Refusal) as caught:
        satisfies(Artifact(1, "t", (record,)), image, Demand())
    assert caught.value.codes == ("contract-not-declared",)
    return caught.value.violations[0].remedy


def test_where_no_decoder_reads_the_contract_the_conversion_is_named_too() -> None:
    rowwise, blockwise = "cozy.fp8-rowwise@1", "hf.fp8-blockwise@1"
    of_the_original = f"`tensorhub produce ORIGINAL DST --to {blockwise} --component vae`"
    assert of_the_original in not_declared(rowwise, blockwise)
    assert of_the_original in not_declared("openai.mxfp4@1", "modelopt.nvfp4@1", blockwise)
    assert f"`tensorhub produce SRC DST --to {rowwise} --component vae`" in not_declared("plain.bf16@1", "openai.mxfp4@1", rowwise)
    assert "`tensorhub decode SRC DST --to plain.f16@1 --component vae`" in not_declared(rowwise, "plain.f16@1")
    for nothing in (not_declared(rowwise, "openai.mxfp4@1"), not_declared("plain.bf16@1", "plain.f16@1")):
        assert "tensorhub produce" not in nothing
        assert "tensorhub decode" not in nothing
