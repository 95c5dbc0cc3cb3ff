"""An optional sidecar that most units have and some lack is said with names, and the table of layouts shows it."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from tensorhub_contracts import Inspection
from tensorhub_contracts.reports import writer
from tests.support.trees import Tree, assert_named_without_decoder, judge, noted

NVFP4 = "modelopt.nvfp4@1"
DECLARED = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"]}}
PROJECTIONS = {"gate_proj": (2048, 3584), "up_proj": (2048, 3584), "down_proj": (7168, 1024)}


def experts(without: tuple[int, ...] = (), count: int = 16) -> Tree:
    """Return a layer of DeepSeek-R1 in NVFP4, in which some experts have no scale of their input."""
    tree: Tree = {}
    for number in range(count):
        for name, (rows, columns) in PROJECTIONS.items():
            module = f"model.layers.3.mlp.experts.{number}.{name}"
            tree[f"{module}.weight"] = ("U8", (rows, columns))
            tree[f"{module}.weight_scale"] = ("F8_E4M3", (rows, columns // 8))
            tree[f"{module}.weight_scale_2"] = ("F32", ())
            if number not in without:
                tree[f"{module}.input_scale"] = ("F32", ())
    return tree


def inspected(folder: Path, tree: Tree) -> Inspection:
    inspection = judge(folder, tree, {}, files={"hf_quant_config.json": DECLARED})
    assert_named_without_decoder(inspection, NVFP4)
    return inspection


def grid_lines(inspection: Inspection) -> list[str]:
    lines = click.unstyle(writer("text")([inspection])).splitlines()
    start = next(place for place, line in enumerate(lines) if line.split()[:2] == ["weight", "scale"])
    return [" ".join(line.split()) for line in lines[start : start + 5]]


def test_experts_without_a_scale_of_their_input_are_named(tmp_path: Path) -> None:
    inspection = inspected(tmp_path, experts(without=(7, 9)))
    lacking = "model.layers.3.mlp.experts.7 (gate_proj, up_proj, down_proj), model.layers.3.mlp.experts.9 (gate_proj, up_proj, down_proj)"
    assert f"input_scale on 42 of 48 units; {lacking} lack it" in inspection.notes


def test_rows_that_look_alike_are_told_apart_in_text_and_json(tmp_path: Path) -> None:
    inspection = inspected(tmp_path, experts(without=(7, 9)))
    assert grid_lines(inspection) == [
        "weight scale units beside it",
        "U8 [2048, 3584] F8_E4M3 [2048, 448] 28 input_scale F32 []",
        "U8 [7168, 1024] F8_E4M3 [7168, 128] 14 input_scale F32 []",
        "U8 [2048, 3584] F8_E4M3 [2048, 448] 4 -",
        "U8 [7168, 1024] F8_E4M3 [7168, 128] 2 -",
    ]
    (report,) = json.loads(writer("json")([inspection]))["inspections"]
    rows = [{key: value for key, value in row.items() if key != "units"} for row in report["grids"]]
    assert all(rows.count(row) == 1 for row in rows)
    assert [each["name"] for each in rows[0]["sidecars"]] == [".input_scale", ".weight_scale_2"]
    assert [each["name"] for each in rows[2]["sidecars"]] == [".weight_scale_2"]


@pytest.mark.parametrize("without", [(), tuple(range(16))])
def test_what_all_units_have_or_lack_is_no_note_and_no_column(without: tuple[int, ...], tmp_path: Path) -> None:
    inspection = inspected(tmp_path, experts(without))
    assert not noted(inspection, "lack it")
    assert grid_lines(inspection)[0] == "weight scale units"


def test_what_most_units_lack_is_not_said_to_be_lacking(tmp_path: Path) -> None:
    inspection = inspected(tmp_path, experts(without=tuple(range(2, 16))))
    assert not noted(inspection, "lack it")
    assert grid_lines(inspection)[0] == "weight scale units beside it"


def test_many_units_that_lack_it_are_counted(tmp_path: Path) -> None:
    inspection = inspected(tmp_path, experts(without=(1, 3, 5, 7, 9)))
    assert noted(inspection, "experts.1 (", "experts.5 (", "and 6 more units lack it")
    assert not noted(inspection, "experts.7 (")
