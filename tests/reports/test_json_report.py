"""The JSON report: as its published schema says, complete, and with the facts that a program goes by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tensorhub_contracts import Inspection, inspect
from tensorhub_contracts.registry.registry import load_registry
from tensorhub_contracts.reports import writer
from tensorhub_contracts.reports.schemas import json_schema
from tests.support.checkpoint_files import write_checkpoint
from tests.support.inspections import accepted, hostile, pipeline, refused, unreadable
from tests.support.trees import BLOCKWISE, bf16, fp8_config, unit


def report(*inspections: Inspection) -> dict[str, Any]:
    """Write a report and read it back; it must be what the published schema describes, with no field more."""
    text = writer("json")(inspections)
    assert text.endswith("\n")
    content: dict[str, Any] = json.loads(text)
    schema = json_schema("inspection")
    jsonschema.Draft202012Validator(schema).validate(content)
    assert set(content) == set(schema["$defs"]["Report"]["properties"])
    for each in content["inspections"]:
        assert set(each) == set(schema["$defs"]["InspectionReport"]["properties"])
    return content


def one(inspection: Inspection) -> dict[str, Any]:
    (each,) = report(inspection)["inspections"]
    found: dict[str, Any] = each
    return found


def test_accepted(tmp_path: Path) -> None:
    content = report(accepted(tmp_path / "tree"))
    assert content["version"] == 1
    assert content["tool"].startswith("tensorhub-contracts ")
    assert content["accepted"] is True
    (each,) = content["inspections"]
    assert each["path"] == str(tmp_path / "tree")
    assert each["component"] == ""
    assert each["accepted"] is True
    assert each["contract"] == {"handle": BLOCKWISE, "digest": load_registry().digest(BLOCKWISE)}
    assert each["violations"] == []
    assert each["proved"]
    assert any("direction" in statement["statement"] for statement in each["not_provable"])
    assert any("absent" in note for note in each["notes"])  # the exclusion that matches no tensor


def test_units_hold_their_facts(tmp_path: Path) -> None:
    units = {each["name"]: each for each in one(accepted(tmp_path / "tree"))["units"]}
    assert units["model.layers.0.q_proj.weight"] == {
        "name": "model.layers.0.q_proj.weight",
        "shard": "model-00001-of-00002.safetensors",
        "form": "matrix",
        "dtype": "F8_E4M3",
        "shape": [256, 384],
        "scale_name": "_scale_inv",
        "scale_dtype": "F32",
        "grid": [2, 3],
        "block": [128, 128],
        "experts": 1,
        "multi_token_prediction": False,
        "orientation_shown": True,
    }
    assert len(units) == 5
    square = units["model.layers.0.k_proj.weight"]
    assert (square["scale_dtype"], square["grid"], square["orientation_shown"]) == ("BF16", [2, 2], False)
    stacked = units["model.layers.1.mlp.experts.gate_up_proj"]
    assert (stacked["form"], stacked["shape"], stacked["grid"], stacked["experts"]) == ("stacked", [4, 256, 384], [4, 2, 3], 4)


def test_units_for_multi_token_prediction_are_marked_in_both_spellings(tmp_path: Path) -> None:
    units = one(accepted(tmp_path / "tree"))["units"]
    marked = {each["name"] for each in units if each["multi_token_prediction"]}
    assert marked == {"mtp.layers.0.q_proj.weight", "model.layers.2.q_proj.weight"}  # the second is beyond num_hidden_layers


def test_counts_by_prefix_and_by_grid(tmp_path: Path) -> None:
    each = one(accepted(tmp_path / "tree"))
    prefixes = {row["prefix"]: row for row in each["prefixes"]}
    assert prefixes["model.layers"] | {"prefix": ""} == {
        "prefix": "",
        "tensors": 8,
        "units": 4,
        "multi_token_prediction": 1,
        "unquantized": 0,
        "unquantized_dtypes": [],
    }
    assert prefixes["lm_head"]["unquantized_dtypes"] == ["BF16"]
    assert sum(row["tensors"] for row in each["prefixes"]) == each["checkpoint"]["tensors"] == 12
    assert sum(row["units"] for row in each["grids"]) == len(each["units"])
    assert each["grids"][0]["units"] == 3  # the most frequent first


def test_what_was_read(tmp_path: Path) -> None:
    checkpoint = one(accepted(tmp_path / "tree"))["checkpoint"]
    shards = sorted((tmp_path / "tree").glob("*.safetensors"))
    headers = sum(8 + int.from_bytes(shard.read_bytes()[:8], "little") for shard in shards)
    assert checkpoint["shards"] == 2
    assert checkpoint["file_bytes"] == sum(shard.stat().st_size for shard in shards)
    assert headers <= checkpoint["bytes_read"] <= headers + sum(each.stat().st_size for each in (tmp_path / "tree").glob("*.json"))
    assert checkpoint["declarations"] == ["config.json: quantization_config"]


def test_the_digest_follows_headers_and_not_payloads(tmp_path: Path) -> None:
    tensors = {**unit("q", 256, 384), **bf16("norm.weight", 64)}
    digests = []
    for name, tree in (("one", tensors), ("same", tensors), ("other", {**tensors, **bf16("norm.weight", 65)})):
        write_checkpoint(tmp_path / name, tree, config=fp8_config())
        digests.append(one(inspect(tmp_path / name))["checkpoint"]["headers_digest"])
    assert digests[0] == digests[1] != digests[2]
    with (tmp_path / "same" / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    assert one(inspect(tmp_path / "same"))["checkpoint"]["headers_digest"] == digests[0]
    assert digests[0].startswith("sha256:")


def test_refused_lists_every_violation_which_the_text_does_not(tmp_path: Path) -> None:
    inspection = refused(tmp_path / "tree")
    each = one(inspection)
    assert each["accepted"] is False
    assert each["contract"] is None
    assert each["nearest"] == BLOCKWISE
    assert each["proved"] == []
    listed = [(violation["code"], violation["object"]) for violation in each["violations"]]
    transposed = [f"model.layers.{number}.q_proj.weight_scale_inv" for number in range(5)]
    assert sorted(listed) == sorted([*(("scale-grid-transposed", name) for name in transposed), ("scale-missing", listed[-1][1])])
    assert listed[-1][1].startswith("model.layers.7.up_proj.weight")
    text = writer("text")([inspection])
    assert transposed[2] in text
    assert transposed[4] not in text
    for violation in each["violations"]:
        assert set(violation) == {"code", "object", "expected", "found", "remedy", "shard", "resembles", "component"}
        assert (violation["shard"], violation["component"]) == ("model.safetensors", "")


def test_unreadable(tmp_path: Path) -> None:
    each = one(unreadable(tmp_path / "tree"))
    assert each["checkpoint"] is None
    assert each["units"] == each["grids"] == each["prefixes"] == []
    assert [violation["code"] for violation in each["violations"]] == ["file-empty"]


def test_a_pipeline_is_accepted_only_if_every_component_is(tmp_path: Path) -> None:
    content = report(*pipeline(tmp_path / "pipe"))
    assert content["accepted"] is False
    assert [(each["component"], each["accepted"]) for each in content["inspections"]] == [("text_encoder", True), ("transformer", False)]
    assert {each["path"] for each in content["inspections"]} == {str(tmp_path / "pipe")}


def test_hostile_names_survive_exactly(tmp_path: Path) -> None:
    inspection = hostile(tmp_path / "tree")
    assert one(inspection)["violations"][0]["object"] == inspection.violations[0].object


@pytest.mark.parametrize("field", ["accepted", "inspections", "version"])
def test_the_schema_asks_for_every_field(tmp_path: Path, field: str) -> None:
    content = report(accepted(tmp_path / "tree"))
    del content[field]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(json_schema("inspection")).validate(content)
