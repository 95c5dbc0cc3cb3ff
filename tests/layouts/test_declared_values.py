"""What a declaration says of values and blocks, where the tree or the type is not what one would think of first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensorhub_contracts import inspect
from tensorhub_contracts.registry.registry import parse_registry
from tests.support.checkpoint_files import write_checkpoint
from tests.support.registry_texts import Table, changed, contract, small, to_toml
from tests.support.trees import (
    BLOCKWISE,
    Fault,
    Tree,
    assert_accepted,
    assert_refused,
    compressed_tensors_config,
    fp8_config,
    judge,
    unit,
    why,
)

WHERE = "config.json: quantization_config: "
OTHER_BLOCK = Fault("declaration-mismatch", f"{WHERE}weight_block_size", "[128, 128]", "[64, 64]")
OTHER_GRID = Fault("declaration-contradicts-grid", "b.weight_scale_inv", "grid [4, 2]", "[2, 1]")


@pytest.mark.parametrize(
    ("tensors", "fault"),
    [
        pytest.param({"a.weight": ("F8_E4M3", (64, 64))}, Fault("scale-missing", "a.weight"), id="no-scale"),
        pytest.param(
            {"a.weight": ("F8_E4M3", (64,)), "a.weight_scale_inv": ("F32", (1,))},
            Fault("weight-rank", "a.weight"),
            id="vector-with-a-scale",
        ),
        pytest.param({"a.weight": ("F8_E4M3", ()), "a.weight_scale_inv": ("F32", ())}, Fault("weight-rank", "a.weight"), id="scalar"),
    ],
)
def test_another_block_is_compared_with_the_units_that_have_a_grid_and_the_others_are_refused_for_what_they_are(
    tensors: Tree, fault: Fault, tmp_path: Path
) -> None:
    inspection = judge(tmp_path, {**tensors, **unit("b", 256, 128)}, fp8_config(weight_block_size=[64, 64]))
    assert_refused(inspection, OTHER_BLOCK, OTHER_GRID, fault)


@pytest.mark.parametrize("value", [True, 8.0, "8", [8]])
def test_a_number_has_its_exact_type(value: Any, tmp_path: Path) -> None:
    tensors: Tree = {"w.weight": ("F8_E4M3", (256, 128)), "w.weight_scale": ("F32", (256, 1))}
    inspection = judge(tmp_path, tensors, compressed_tensors_config("channel", num_bits=value))
    assert any(each.code == "declaration-invalid" and each.object.endswith("num_bits") for each in inspection.violations), why(inspection)


@pytest.mark.parametrize(("value", "code"), [(True, "declaration-invalid"), (2, "declaration-mismatch"), (1, None)])
def test_true_is_not_the_number_1(value: Any, code: str | None, tmp_path: Path) -> None:
    def ask_for_1(tables: Table) -> None:
        contract(tables, BLOCKWISE)["declares"][0]["require"].append({"key": "version", "equals": 1})

    folder = write_checkpoint(tmp_path, unit("w", 256, 128), config=fp8_config(version=value))
    inspection = inspect(folder, registry=parse_registry(to_toml(changed(small(), ask_for_1))))
    if code is None:
        assert inspection.codes == (), why(inspection)
    else:
        assert [(each.code, each.object) for each in inspection.violations] == [(code, f"{WHERE}version")]


def test_a_declaration_of_the_contracts_own_block_is_not_compared_with_anything(tmp_path: Path) -> None:
    assert_accepted(judge(tmp_path, unit("b", 256, 128), fp8_config()), BLOCKWISE, 1)
