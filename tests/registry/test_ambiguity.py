"""No tree is in two contracts: what nothing declares is told apart by its bytes alone, and what one declaration may mean likewise."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tensorhub_contracts import inspect
from tensorhub_contracts.registry.contract import Contract, Form
from tensorhub_contracts.registry.registry import load_registry
from tensorhub_contracts.registry.shape_patterns import bind, expand
from tensorhub_contracts.testing.sample_units import declaring_files, declaring_metadata
from tests.support.trees import Tree, judge, why

REGISTRY = load_registry()
UNDECLARED = [contract for contract in REGISTRY.contracts.values() if contract.quantized and contract.when_undeclared == "allowed"]

#: Geometries in which shapes coincide: one row, one column, one block, equal sides, sizes below a group.
SIZES = (1, 16, 128, 144)


def examples(contract: Contract) -> list[Tree]:
    """Return trees of one unit that are in a contract, in geometries chosen to coincide with those of others."""
    trees = []
    for form in [form for form in contract.form if form.required] or contract.form:
        rank = len(form.primary.patterns[0])
        for shape in itertools.product(SIZES, repeat=min(rank, 2)):
            stored = (*(2,) * (rank - 2), *shape)[-rank:] if rank else ()
            symbols = bind(form.primary.patterns[0], stored)
            if symbols is None or any(symbols.get(symbol, 0) % factor for symbol, factor in contract.multiple_of.items()):
                continue
            for optional in (False, True):
                trees += _units(form, symbols, stored, optional)
    return trees


def _units(form: Form, symbols: dict[str, int], stored: tuple[int, ...], optional: bool) -> list[Tree]:
    roles = [(role, facts) for role, facts in form.tensors.items() if role == "weight" or optional or not facts.optional]
    # Every dtype of the scale itself; of what lies beside it every shape, in the first dtype.
    choices = [
        [(role, facts, dtype, pattern) for dtype in (facts.dtypes if role == "scale" else facts.dtypes[:1]) for pattern in facts.patterns]
        for role, facts in roles
    ]
    trees = []
    for choice in itertools.product(*choices):
        tree: Tree = {}
        for role, facts, dtype, pattern in choice:
            name = facts.name.replace("{module}", "layers.0.w").replace("{param}", "layers.0.w").replace("{number}", "0")
            tree[name] = (dtype, stored if role == "weight" else expand(pattern, symbols, (7,)))
        trees.append(tree)
    return trees


CASES = [(contract, tree) for contract in UNDECLARED for tree in examples(contract)]


def test_there_is_something_to_tell_apart() -> None:
    assert {contract.handle for contract, _ in CASES} == {
        "cozy.fp8-rowwise@1", "cozy.fp8-storage@1", "cozy.nvfp4-flat@1", "bfl.nvfp4-preswizzled@1", "comfy.fp8-scaled@1",
        "comfy.fp8-noted@1", "comfy.nvfp4-noted@1",
    }  # fmt: skip
    assert len(CASES) > 100


@pytest.mark.parametrize("contract", UNDECLARED, ids=lambda contract: contract.handle)
def test_an_undeclared_tree_is_in_its_own_contract_and_in_no_other(contract: Contract, tmp_path: Path) -> None:
    """By both routes: the contract that is found, and every other undeclared one that is asked for."""
    for number, (_, tree) in enumerate(case for case in CASES if case[0] is contract):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = judge(folder, tree)
        assert found.contract == contract.handle, f"{tree}: {why(found)}"
        assert found.nearest == contract.handle, f"{tree}: {why(found)}"
        for other in UNDECLARED:
            if other is not contract:
                asked = judge(folder, tree, contract=other.handle)
                assert asked.contract is None, f"{tree} is in {other.handle} too"


def test_a_declared_contract_accepts_no_tree_that_declares_nothing(tmp_path: Path) -> None:
    for number, contract in enumerate(each for each in REGISTRY.contracts.values() if each.when_undeclared == "never"):
        folder = tmp_path / str(number)
        folder.mkdir()
        tree = examples(contract)[-1]
        inspection = judge(folder, tree, contract=contract.handle)
        assert inspection.contract is None
        assert "declaration-missing" in inspection.codes, f"{contract.handle}: {why(inspection)}"


def declared_trees(contract: Contract) -> Iterator[tuple[Tree, dict[str, Any]]]:
    """Yield trees of a contract with each declaration of it, as `judge` takes them."""
    for declares in contract.declares:
        alone = attrs.evolve(contract, declares=(declares,))
        for tree in examples(contract)[::3]:
            files = declaring_files(alone)
            config = files.pop("config.json")
            yield tree, {"config": config, "files": files, "metadata": declaring_metadata(alone, list(tree))}


@pytest.mark.parametrize("contract", [each for each in REGISTRY.contracts.values() if each.declares], ids=lambda contract: contract.handle)
def test_a_declared_tree_is_in_its_own_contract_and_in_no_other(contract: Contract, tmp_path: Path) -> None:
    """Several contracts have one declaration; whichever of them is asked for, one alone accepts a tree."""
    for tree, writing in declared_trees(contract):
        found = judge(tmp_path, tree, **writing)
        assert found.candidates is not None
        accepting = {handle for handle in found.candidates.declared.handles if in_it(Path(found.path), handle)}
        assert accepting == {contract.handle}, f"{tree} {writing}"
        assert contract.handle in (found.contract, found.nearest), f"{tree} {writing}: {why(found)}"


def in_it(folder: Path, handle: str) -> bool:
    """Whether a tree is in a contract that is asked for, whether something reads it or not."""
    asked = inspect(folder, contract=handle)
    return asked.contract == handle or asked.codes == ("contract-without-decoder",)
