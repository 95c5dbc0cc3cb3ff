"""The report for people: the verdict first, then the reasons, then what nobody can know from headers."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tensorhub_contracts import Inspection, inspect
from tensorhub_contracts.registry.registry import load_registry
from tensorhub_contracts.reports import writer
from tests.support.checkpoint_files import write_checkpoint
from tests.support.inspections import accepted, hostile, pipeline, refused, unreadable
from tests.support.trees import BLOCKWISE, ROWWISE, Tree, bf16, compressed_tensors_config, fp8_config, unit


def text_of(*inspections: Inspection) -> str:
    """Write the report and take its styles off."""
    return click.unstyle(writer("text")(inspections))


def section(text: str, title: str) -> list[str]:
    """Return the lines under a title, up to the next empty line."""
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if line.strip().startswith(title))
    end = next((place for place in range(start, len(lines)) if not lines[place]), len(lines))
    return lines[start + 1 : end]


def test_the_verdict_stands_first(tmp_path: Path) -> None:
    lines = text_of(accepted(tmp_path / "tree")).splitlines()
    assert lines[0] == str(tmp_path / "tree")
    assert lines[1] == f"  contract  {BLOCKWISE}  {load_registry().digest(BLOCKWISE)}"
    assert lines[2].startswith("  tensors   12 in 2 shards, ")
    assert lines[3] == "  account   weight 5 (753.7 kB), sidecar 5 (176 bytes), unquantized 2 (262.7 kB)"
    assert lines[4] == "  units     5, 2 of them in multi-token prediction (MTP)"


def test_a_refusal_says_so_first_and_against_what(tmp_path: Path) -> None:
    lines = text_of(refused(tmp_path / "tree")).splitlines()
    assert lines[1] == f"  contract  REFUSED, judged against {BLOCKWISE}"
    assert text_of(unreadable(tmp_path / "empty")).splitlines()[1] == "  contract  REFUSED"


def test_styles_mark_the_verdict(tmp_path: Path) -> None:
    assert click.style(BLOCKWISE, fg="green", bold=True) in writer("text")([accepted(tmp_path / "tree")])
    assert click.style("REFUSED", fg="red", bold=True) in writer("text")([refused(tmp_path / "bad")])


def test_counts_by_prefix(tmp_path: Path) -> None:
    rows = [line.split() for line in section(text_of(accepted(tmp_path / "tree")), "prefix")]
    assert rows == [
        ["lm_head", "1", "-", "1", "BF16"],
        ["model.layers", "8", "4", "-"],
        ["model.norm", "1", "-", "1", "BF16"],
        ["mtp.layers", "2", "1", "-"],
    ]


def test_the_table_of_grids(tmp_path: Path) -> None:
    rows = section(text_of(accepted(tmp_path / "tree")), "weight ")
    assert rows[0].split() == ["F8_E4M3", "[256,", "384]", "F32", "[2,", "3]", "3"]
    assert any(row.split()[-4:] == ["1", "orientation", "not", "shown"] and "BF16 [2, 2]" in row for row in rows)
    assert any("[4, 256, 384]" in row and "F32 [4, 2, 3]" in row for row in rows)


def test_violations_are_grouped_with_a_count_three_names_and_how_many_more(tmp_path: Path) -> None:
    assert section(text_of(refused(tmp_path / "tree")), "scale-grid-transposed x 5") == [
        "    model.layers.0.q_proj.weight_scale_inv  in model.safetensors",
        "    model.layers.1.q_proj.weight_scale_inv  in model.safetensors",
        "    model.layers.2.q_proj.weight_scale_inv  in model.safetensors",
        "    and 2 more; --output json lists all",
        "    expected  [2, 3] for weight [256, 384]",
        "    found     [3, 2]: the transposed grid",
        "    remedy    Take weight and scale from one export; a scale is never reshaped.",
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_up_to_three_names_nothing_is_left_out(tmp_path: Path, count: int) -> None:
    tensors: Tree = {}
    for number in range(count):
        tensors[f"layers.{number}.weight"] = ("F8_E4M3", (256, 384))
        tensors[f"layers.{number}.weight_scale_inv"] = ("F32", (3, 2))
    text = text_of(inspect(write_checkpoint(tmp_path / "tree", tensors, config=fp8_config())))
    assert (" more;" in text) == (count > 3)
    assert (f"scale-grid-transposed x {count}" in text) == (count > 1)
    assert sum(line.startswith("    layers.") for line in text.splitlines()) == min(count, 3)


def test_what_it_resembles_is_named(tmp_path: Path) -> None:
    tensors = {"a.weight": ("F8_E4M3", (256, 384)), "a.weight_scale": ("U8", (256, 12))}
    tree = write_checkpoint(tmp_path / "tree", tensors, config=compressed_tensors_config("block", block_structure=[128, 128]))
    assert "    resembles compressed-tensors.mxfp8@1" in text_of(inspect(tree)).splitlines()
    assert f"judged against {ROWWISE}" in text_of(inspect(tree, contract=ROWWISE))


def test_the_last_line_explains_each_code_once(tmp_path: Path) -> None:
    inspection = refused(tmp_path / "tree")
    assert text_of(inspection).splitlines()[-1] == f"  tensorhub explain {' '.join(inspection.codes)}"
    assert "tensorhub explain" not in text_of(accepted(tmp_path / "good"))


def test_what_was_proved_and_what_not(tmp_path: Path) -> None:
    text = text_of(accepted(tmp_path / "tree"))
    assert any("tiled" in line for line in section(text, "proved from headers"))
    not_provable = section(text, "not shown by headers")
    assert any("NaN" in line for line in not_provable)
    assert any(line.endswith(": model.layers.0.k_proj.weight") for line in not_provable)  # the unit with a square grid
    assert any("absent" in line for line in section(text, "notes"))
    refusal = text_of(refused(tmp_path / "bad"))
    assert "proved from headers" not in refusal
    assert "not shown by headers" not in refusal


def test_long_tables_are_cut_and_say_so(tmp_path: Path) -> None:
    tensors = {name: facts for number in range(40) for name, facts in unit(f"p{number:02}.q", 128 * (number + 1), 128).items()}
    text = text_of(inspect(write_checkpoint(tmp_path / "tree", tensors, config=fp8_config())))
    assert section(text, "prefix")[-1] == "  and 16 more; --output json lists all"
    assert section(text, "weight ")[-1] == "  and 28 more; --output json lists all"


def test_a_pipeline_is_a_block_for_each_component(tmp_path: Path) -> None:
    text = text_of(*pipeline(tmp_path / "pipe"))
    assert text.startswith(f"{tmp_path}/pipe · text_encoder\n  contract  {BLOCKWISE}")
    assert f"\n\n{tmp_path}/pipe · transformer\n  contract  REFUSED" in text


def test_names_are_spelled_out(tmp_path: Path) -> None:
    text = text_of(hostile(tmp_path / "tree"))
    assert all(line.isprintable() for line in text.split("\n"))
    assert "a\\x1b[31m\\x00\\ufffe&<>" in text


def test_no_line_ends_in_spaces(tmp_path: Path) -> None:
    text = text_of(accepted(tmp_path / "tree"), refused(tmp_path / "bad"), unreadable(tmp_path / "empty"))
    assert [line for line in text.split("\n") if line != line.rstrip()] == []
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


# Whole reports, as they are read. A change here is a change that every user sees.

ACCEPTED = """\
tree
  contract  hf.fp8-blockwise@1  {digest}
  tensors   3 in 1 shard, 98.9 kB, of which {read} were read
  account   weight 1 (98.3 kB), sidecar 1 (24 bytes), unquantized 1 (256 bytes)
  units     1

  prefix        tensors  units  unquantized  unquantized dtypes
  model.layers        2      1            -
  model.norm          1      -            1  BF16

  weight              scale       units
  F8_E4M3 [256, 384]  F32 [2, 3]      1

  proved from headers
    - container: 1 shard, every payload tiled by its tensors without holes or overlaps
    - units: 1 weight, each with the sidecars of hf.fp8-blockwise@1, every sidecar used exactly once
    - grids: every scale grid has the shape that blocks of 128 x 128 ask for
    - declaration: config.json: quantization_config declares hf.fp8-blockwise@1

  not shown by headers
    - the direction of the scale: that it multiplies is part of the contract, not of the headers
    - where members begin inside a fused weight: the contract counts blocks from row 0 of the stored tensor
    - the values: scales that are zero, negative or not finite, and NaN codes, are seen only when bytes are read
"""

REFUSED = """\
tree
  contract  REFUSED, judged against hf.fp8-blockwise@1
  tensors   3 in 1 shard, 98.9 kB, of which {read} were read
  account   unquantized 1 (256 bytes), refused 2 (98.3 kB)

  scale-grid-transposed
    model.layers.0.q_proj.weight_scale_inv  in model.safetensors
    expected  [2, 3] for weight [256, 384]
    found     [3, 2]: the transposed grid
    remedy    Take weight and scale from one export; a scale is never reshaped.

  prefix        tensors  units  unquantized  unquantized dtypes
  model.layers        2      -            -
  model.norm          1      -            1  BF16

  tensorhub explain scale-grid-transposed
"""


@pytest.mark.parametrize(("grid", "expected"), [((2, 3), ACCEPTED), ((3, 2), REFUSED)])
def test_a_whole_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grid: tuple[int, ...], expected: str) -> None:
    monkeypatch.chdir(tmp_path)
    name = "model.layers.0.q_proj.weight"
    tensors = {name: ("F8_E4M3", (256, 384)), f"{name}_scale_inv": ("F32", grid), **bf16("model.norm.weight", 128)}
    inspection = inspect(write_checkpoint(Path("tree"), tensors, config=fp8_config()))
    read = inspection.checkpoint.bytes_read if inspection.checkpoint else 0  # what this counts is asked of the JSON report
    assert text_of(inspection) == expected.format(digest=load_registry().digest(BLOCKWISE), read=f"{read} bytes")
