"""Properties: any geometry is accepted, any single fault is refused by name, and every one of several faults is listed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tensorhub_contracts import Inspection
from tests.support.trees import BLOCKWISE, Tree, bf16, blocks, fp8_config, judge, noted, stacked_unit, unit, why

FP8 = fp8_config()
SIZES = st.one_of(st.integers(1, 5000), st.sampled_from([1, 127, 128, 129, 255, 256, 257, 576, 1000, 2112, 7168]))
DTYPES = st.sampled_from(["F32", "BF16", "F16"])
MATRICES = st.tuples(SIZES, SIZES)
STACKED = st.tuples(st.integers(1, 9), SIZES, SIZES)


def judged(tree: Tree) -> Inspection:
    """Inspect a tree that declares block FP8; its folder is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        return judge(Path(folder), tree, FP8)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.one_of(MATRICES, STACKED), DTYPES), min_size=1, max_size=6))
def test_any_geometry_with_partial_blocks_is_accepted(units: list[tuple[tuple[int, ...], str]]) -> None:
    tree: Tree = bf16("norm.weight", 8)
    for number, (shape, scale) in enumerate(units):
        name = f"layers.{number}.w"
        tree |= unit(name, *shape, scale=scale) if len(shape) == 2 else stacked_unit(name, *shape, scale=scale)
    inspection = judged(tree)
    assert inspection.contract == BLOCKWISE, why(inspection)
    grids = {each.name: each.layout.grid for each in inspection.units}
    assert grids == {name: blocks(shape) for name, (dtype, shape) in tree.items() if dtype == "F8_E4M3"}
    # A grid with as many blocks down as across has the shape of its transpose: those units, and only those, are listed.
    square = {name for name, grid in grids.items() if grid[-1] == grid[-2] > 1}
    listed = {name for what, names in inspection.not_provable if "orientation" in what for name in names}
    assert listed == square


@dataclass(frozen=True)
class Mutation:
    """One fault put into a valid unit. It returns the tensors to set (None removes one) and the objects that may be named for it."""

    name: str
    codes: frozenset[str]
    change: Callable[[str, tuple[int, ...]], tuple[dict[str, tuple[str, tuple[int, ...]] | None], set[str]]]


def mutation(name: str, *codes: str) -> Callable[[Callable[..., Mapping[str, tuple[str, tuple[int, ...]] | None]]], Mutation]:
    """Make a mutation of a function from the weight's name and shape to the changed tensors; what it changes is what must be named."""

    def make(change: Callable[..., Mapping[str, tuple[str, tuple[int, ...]] | None]]) -> Mutation:
        def with_names(weight: str, shape: tuple[int, ...]) -> tuple[dict[str, tuple[str, tuple[int, ...]] | None], set[str]]:
            changed = dict(change(weight, shape))
            return changed, {weight, f"{weight}_scale_inv", *changed}

        return Mutation(name, frozenset(codes), with_names)

    return make


@mutation("drop-scale", "scale-missing")
def drop_scale(weight: str, shape: tuple[int, ...]) -> Mapping[str, None]:
    return {f"{weight}_scale_inv": None}


@mutation("transpose-grid", "scale-grid-transposed")
def transpose_grid(weight: str, shape: tuple[int, ...]) -> Tree:
    *experts, rows, columns = blocks(shape)
    return {f"{weight}_scale_inv": ("F32", (*experts, columns, rows))}


@mutation("one-row-of-blocks-more", "scale-grid", "scale-grid-transposed")
def one_row_more(weight: str, shape: tuple[int, ...]) -> Tree:
    *experts, rows, columns = blocks(shape)
    return {f"{weight}_scale_inv": ("F32", (*experts, rows + 1, columns))}


@mutation("one-column-of-blocks-less", "scale-grid", "scale-grid-transposed")
def one_column_less(weight: str, shape: tuple[int, ...]) -> Tree:
    *experts, rows, columns = blocks(shape)
    return {f"{weight}_scale_inv": ("F32", (*experts, rows, columns - 1))}


@mutation("flat-grid", "scale-rank")
def flat_grid(weight: str, shape: tuple[int, ...]) -> Tree:
    rows, columns = blocks(shape)[-2:]
    return {f"{weight}_scale_inv": ("F32", (rows * columns,))}


@mutation("scalar-scale", "scale-rank")
def scalar_scale(weight: str, shape: tuple[int, ...]) -> Tree:
    return {f"{weight}_scale_inv": ("F32", ())}


@mutation("exponents", "scale-dtype")
def exponents(weight: str, shape: tuple[int, ...]) -> Tree:
    return {f"{weight}_scale_inv": ("F8_E8M0", blocks(shape))}


@mutation("wide-scale", "scale-dtype")
def wide_scale(weight: str, shape: tuple[int, ...]) -> Tree:
    return {f"{weight}_scale_inv": ("F64", blocks(shape))}


@mutation("e5m2", "weight-dtype")
def e5m2(weight: str, shape: tuple[int, ...]) -> Tree:
    return {weight: ("F8_E5M2", shape)}


@mutation("fnuz", "weight-dtype")
def fnuz(weight: str, shape: tuple[int, ...]) -> Tree:
    return {weight: ("F8_E4M3FNUZ", shape)}


@mutation("dense-weight", "scale-orphan")
def dense_weight(weight: str, shape: tuple[int, ...]) -> Tree:
    return {weight: ("BF16", shape)}


@mutation("plural-sidecar", "scale-name-foreign")
def plural_leaf(weight: str, shape: tuple[int, ...]) -> Mapping[str, tuple[str, tuple[int, ...]] | None]:
    return {f"{weight}_scale_inv": None, f"{weight}_scales_inv": ("F32", blocks(shape))}


@mutation("renamed-sidecar", "scale-name-unknown")
def renamed_leaf(weight: str, shape: tuple[int, ...]) -> Mapping[str, tuple[str, tuple[int, ...]] | None]:
    return {f"{weight}_scale_inv": None, f"{weight}_scaling": ("F32", blocks(shape))}


@mutation("second-scale", "scale-ambiguous")
def second_scale(weight: str, shape: tuple[int, ...]) -> Tree:
    return {f"{weight}_scale": ("F32", blocks(shape))}


@mutation("orphan", "scale-orphan")
def orphan(weight: str, shape: tuple[int, ...]) -> Tree:
    return {f"{weight}2_scale_inv": ("F32", blocks(shape))}


@mutation("empty-weight", "weight-empty", "scale-grid")
def empty_weight(weight: str, shape: tuple[int, ...]) -> Tree:
    return {weight: ("F8_E4M3", (*shape[:-1], 0))}


@mutation("five-dimensions", "weight-rank", "scale-rank")
def five_dimensions(weight: str, shape: tuple[int, ...]) -> Tree:
    return {weight: ("F8_E4M3", (1, 1, *shape) if len(shape) == 3 else (1, 1, 1, *shape))}


MUTATIONS = (
    drop_scale, transpose_grid, one_row_more, one_column_less, flat_grid, scalar_scale, exponents, wide_scale, e5m2, fnuz, dense_weight,
    plural_leaf, renamed_leaf, second_scale, orphan, empty_weight, five_dimensions,
)  # fmt: skip

#: At least 2 blocks each way and unequal counts, so that every mutation changes something that headers show.
ROWS = st.integers(129, 600)
COLUMNS = st.integers(641, 1400)
SHAPES = st.one_of(st.tuples(ROWS, COLUMNS), st.tuples(COLUMNS, ROWS), st.tuples(st.integers(2, 5), ROWS, COLUMNS))


def valid_tree(shapes: list[tuple[int, ...]]) -> tuple[Tree, list[str]]:
    tree: Tree = {**bf16("norm.weight", 8), **unit("untouched", 300, 700)}
    weights = []
    for number, shape in enumerate(shapes):
        module = f"layers.{number}.w"
        tree |= unit(module, *shape) if len(shape) == 2 else stacked_unit(module, *shape)
        weights.append(f"{module}.weight" if len(shape) == 2 else module)
    return tree, weights


def mutated(tree: Tree, weight: str, each: Mutation) -> tuple[Tree, set[str]]:
    changed, names = each.change(weight, tree[weight][1])
    merged = {**tree, **changed}
    return {name: entry for name, entry in merged.items() if entry is not None}, names


@pytest.mark.parametrize("each", MUTATIONS, ids=lambda each: each.name)
@settings(max_examples=6, deadline=None)
@given(SHAPES)
@example((300, 700))
@example((3, 300, 700))
def test_a_single_fault_is_refused_and_names_the_tensor(each: Mutation, shape: tuple[int, ...]) -> None:
    tree, (weight,) = valid_tree([shape])
    assert judged(tree).contract == BLOCKWISE
    inspection = judged(*mutated(tree, weight, each)[:1])
    _, names = mutated(tree, weight, each)
    assert inspection.contract is None, f"{each.name} was accepted"
    at_fault = [violation for violation in inspection.violations if violation.object in names]
    assert at_fault, why(inspection)
    assert any(violation.code in each.codes for violation in at_fault), why(inspection)
    # Nothing that is right is blamed: of the tensors, only those of the changed unit are named.
    blamed = {violation.object for violation in inspection.violations} - names - {inspection.path}
    assert not blamed, why(inspection)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(SHAPES, st.sampled_from(MUTATIONS)), min_size=2, max_size=8))
def test_every_one_of_several_independent_faults_is_listed(chosen: list[tuple[tuple[int, ...], Mutation]]) -> None:
    tree, weights = valid_tree([shape for shape, _ in chosen])
    named = []
    for weight, (_, each) in zip(weights, chosen, strict=True):
        tree, names = mutated(tree, weight, each)
        named.append((each, names))
    inspection = judged(tree)
    assert inspection.contract is None
    for each, names in named:
        found = {violation.code for violation in inspection.violations if violation.object in names}
        assert found & each.codes, f"{each.name} on {sorted(names)} is not listed:\n{why(inspection)}"
    everything = set().union(*(names for _, names in named), {inspection.path})
    assert {violation.object for violation in inspection.violations} <= everything, why(inspection)


@settings(max_examples=25, deadline=None)
@given(st.lists(SHAPES, min_size=1, max_size=5), st.randoms(use_true_random=False), st.integers(1, 4))
def test_neither_order_nor_shards_change_a_verdict(shapes: list[tuple[int, ...]], random: object, shards: int) -> None:
    tree, weights = valid_tree(shapes)
    tree, _ = mutated(tree, weights[0], one_row_more)
    names = list(tree)
    random.shuffle(names)  # type: ignore[attr-defined]
    shuffled = {name: tree[name] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        one = judge(Path(folder), tree, FP8)
        other = judge(Path(folder), shuffled, FP8, shards=min(shards, len(tree)))
    assert {(each.code, each.object, each.expected, each.found) for each in one.violations} == {
        (each.code, each.object, each.expected, each.found) for each in other.violations
    }
    assert (one.contract, one.nearest, one.resembles) == (other.contract, other.nearest, other.resembles)


@settings(max_examples=40, deadline=None)
@given(MATRICES, MATRICES)
def test_a_grid_passes_only_if_it_is_the_grid_of_the_shape(weight: tuple[int, int], grid: tuple[int, int]) -> None:
    tree: Tree = {"w.weight": ("F8_E4M3", weight), "w.weight_scale_inv": ("F32", grid)}
    assert (judged(tree).contract == BLOCKWISE) == (grid == blocks(weight))


@settings(max_examples=40, deadline=None)
@given(MATRICES, st.integers(-1, 1), st.integers(-1, 1))
def test_a_grid_that_is_off_by_one_never_passes(weight: tuple[int, int], rows: int, columns: int) -> None:
    grid = (blocks(weight)[0] + rows, blocks(weight)[1] + columns)
    assume(min(grid) >= 0)
    tree: Tree = {"w.weight": ("F8_E4M3", weight), "w.weight_scale_inv": ("F32", grid)}
    assert (judged(tree).contract == BLOCKWISE) == (rows == columns == 0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 300)), min_size=1, max_size=5))
def test_rowwise_trees_of_any_size_are_accepted_when_aligned(shapes: list[tuple[int, int]]) -> None:
    tree: Tree = {}
    for number, (rows, sixteenths) in enumerate(shapes):
        tree |= {f"l.{number}.weight": ("F8_E4M3", (rows, 16 * sixteenths)), f"l.{number}.weight_scale": ("F32", (rows,))}
    with tempfile.TemporaryDirectory() as folder:
        inspection = judge(Path(folder), tree)
    assert inspection.contract == "cozy.fp8-rowwise@1", why(inspection)


SEGMENTS = st.sampled_from(["mlp", "gate", "gate_proj", "gate_up_proj", "layers", "0", "10", "1", "model", "self_attn", "weight"])
MODULES = st.lists(SEGMENTS, min_size=1, max_size=5).map(".".join)


@settings(max_examples=40, deadline=None)
@given(st.lists(MODULES, min_size=1, max_size=6, unique=True), st.lists(MODULES, max_size=5))
@example(["mlp"], ["model.mlp"])
@example(["mlp", "mlp.mlp"], ["mlp", "model.mlp"])
def test_exclusions_match_whole_segments_and_change_no_verdict(modules: list[str], entries: list[str]) -> None:
    tree: Tree = {}
    for number, module in enumerate(modules):
        tree |= unit(module, 256, 640) if number % 2 else bf16(f"{module}.weight", 256, 640)
    tree |= unit("always", 256, 640)
    with tempfile.TemporaryDirectory() as folder:
        bare = judge(Path(folder), tree, FP8)
        listed = judge(Path(folder), tree, fp8_config(modules_to_not_convert=entries))
    assert (listed.contract, listed.violations) == (bare.contract, bare.violations)

    def covers(entry: str, module: str) -> bool:
        without_root = entry.partition("model.")[2] if entry.startswith("model.") else ""  # files may name the parts without it
        return f".{entry}." in f".{module}." or (bool(without_root) and f"{module}.".startswith(f"{without_root}."))

    weights = [name.removesuffix(".weight") for name in tree if name.endswith(".weight")]
    quantized = [module for module in weights if tree[f"{module}.weight"][0] == "F8_E4M3"]
    assert {entry for entry, _ in listed.exclusions.contradicted} == {e for e in entries if any(covers(e, module) for module in quantized)}
    assert listed.exclusions.matched == len({e for e in entries if any(covers(e, module) for module in weights)})
    assert noted(listed, "contradicted") == bool(listed.exclusions.contradicted)
