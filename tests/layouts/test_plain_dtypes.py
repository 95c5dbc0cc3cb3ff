"""Unquantized trees: one dtype of matrices, or several, or no matrix; each is in exactly one contract."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.support.trees import BLOCKWISE, Fault, Tree, assert_accepted, assert_refused, fp8_config, judge, unit, why

PLAIN = {"BF16": "plain.bf16@1", "F16": "plain.f16@1", "F32": "plain.f32@1"}
MIXED = "plain.mixed@1"
SETS = [combination for size in (1, 2, 3) for combination in itertools.combinations(PLAIN, size)]


def tensors(rank: int, dtypes: tuple[str, ...]) -> Tree:
    return {f"{'mv'[rank < 2]}.{rank}.{dtype}.weight": (dtype, (8,) * rank) for dtype in dtypes}


def in_one_contract(tree: Tree, expected: str, folder: Path) -> None:
    """Both ways: it is found, and every other contract that is asked for refuses."""
    found = judge(folder, tree)
    assert_accepted(found, expected, 0)
    for other in {*PLAIN.values(), MIXED} - {expected}:
        asked = judge(folder, tree, contract=other)
        assert asked.contract is None, f"{tree} is in {other} too"
        assert set(asked.codes) == {"unquantized-dtype"}, why(asked)


@pytest.mark.parametrize("vectors", [(), *SETS], ids=str)
@pytest.mark.parametrize("matrices", SETS, ids=str)
def test_matrices_decide(matrices: tuple[str, ...], vectors: tuple[str, ...], tmp_path: Path) -> None:
    expected = MIXED if len(matrices) > 1 else PLAIN[matrices[0]]
    in_one_contract({**tensors(2, matrices), **tensors(1, vectors)}, expected, tmp_path)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("vectors", SETS, ids=str)
def test_without_a_matrix_vectors_do(vectors: tuple[str, ...], rank: int, tmp_path: Path) -> None:
    expected = MIXED if len(vectors) > 1 else PLAIN[vectors[0]]
    in_one_contract({**tensors(rank, vectors), "ids": ("I64", (3,))}, expected, tmp_path)


@pytest.mark.parametrize("others", [(), ("BF16",), ("BF16", "F32")], ids=str)
def test_f64_is_in_none(others: tuple[str, ...], tmp_path: Path) -> None:
    tree = {**tensors(2, others), "wide.weight": ("F64", (4, 4))}
    inspection = judge(tmp_path, tree)
    assert_refused(inspection, Fault("unquantized-dtype", "wide.weight", found="F64 [4, 4]"))
    vector = judge(tmp_path, {**tensors(1, others), "wide.bias": ("F64", (4,))})
    assert_refused(vector, Fault("unquantized-dtype", "wide.bias", found="F64 [4]"))


def test_a_tree_of_one_dtype_that_is_to_be_mixed_is_refused_as_a_whole(tmp_path: Path) -> None:
    inspection = judge(tmp_path, {**tensors(2, ("F16",)), **tensors(1, ("F32",))}, contract=MIXED)
    assert_refused(inspection, Fault("unquantized-dtype", expected="two dtypes or more", found="F16 alone"))


def test_under_a_quantized_contract_the_mix_is_as_it_was(tmp_path: Path) -> None:
    assert_accepted(judge(tmp_path, {**unit("w", 256, 128), **tensors(2, ("BF16", "F32"))}, fp8_config()), BLOCKWISE, 1)
    assert_accepted(judge(tmp_path, {**unit("w", 256, 128), **tensors(1, ("F32",))}, fp8_config()), BLOCKWISE, 1)
