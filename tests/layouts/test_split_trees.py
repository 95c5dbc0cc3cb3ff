"""The same tensors have one verdict, however they are distributed over shards."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorhub_contracts import read_contracts
from tensorhub_contracts.checkpoints.geometry import Geometry
from tensorhub_contracts.inspection.units.grouping import Grouping
from tensorhub_contracts.inspection.units.tensor_groups import TensorGroups
from tensorhub_contracts.registry.plugin_contracts import with_owned
from tensorhub_contracts.registry.registry import load_registry
from tensorhub_contracts.registry.sidecar_names import SidecarNames
from tests.layouts.test_families import FAMILIES
from tests.support.plugin_sources import contracts
from tests.support.trees import Tree, fp8_config, judge, stacked_unit

NAMES = load_registry().sidecar_names
LEAF = '\n[[sidecar]]\nsuffix = "up_scale_inv"\nrole = "weight-scale"\nbeside = [".weight"]\nused_by = "acme"\n'
OWNING = with_owned(
    load_registry(), read_contracts(contracts("acme.int8@1").replace("{module}.weight_scale", "{module}up_scale_inv") + LEAF)
).sidecar_names

#: Weights, and each sidecar's name on each of them: also those that the registry does not put beside one another.
PRIMARIES = ["a.weight", "a", "a.weight_packed", "a_blocks", "gate_up"]
ENDS = ["", *(sidecar.suffix for sidecar in NAMES.sidecars), "up_scale_inv"]
SHAPES = st.builds(
    Geometry, st.sampled_from(["F8_E4M3", "F8_E4M3", "U8", "BF16", "F32", "I64"]), st.sampled_from([(4, 4), (4,)]), st.just(0)
)
SIDECARS = st.lists(st.tuples(st.sampled_from(ENDS), SHAPES), max_size=6)
TENSORS = st.lists(st.tuples(st.sampled_from(PRIMARIES), SHAPES, SIDECARS), min_size=1, max_size=3).map(
    lambda units: {
        **{primary.removesuffix(".weight") + end: shape for primary, _, sides in units for end, shape in sides},
        **{primary: shape for primary, shape, _ in units},
    }
)


def grouped(tensors: dict[str, Geometry], places: list[int], names: SidecarNames) -> dict[str, Any]:
    """Group tensors that lie in shards at these places, and return the groups without the order of anything."""
    grouping = Grouping(names)
    for shard in sorted(set(places)):
        grouping.add([entry for entry, place in zip(tensors.items(), places, strict=True) if place == shard])
    groups = grouping.finish()
    return unordered(groups)


def unordered(groups: TensorGroups) -> dict[str, Any]:
    return {
        "quantized": {geometry: sorted(names) for geometry, names in groups.quantized.items()},
        "orphans": sorted((name, sidecar.suffix) for name, sidecar in groups.orphans),
        "cache_scales": sorted(groups.cache_scales),
        "unquantized": dict(groups.unquantized),
        "other": dict(groups.other),
    }


@pytest.mark.parametrize("names", [NAMES, OWNING], ids=["shipped", "with-a-plugin"])
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_groups_are_the_same_in_any_split(names: SidecarNames, data: st.DataObject) -> None:
    tensors = data.draw(TENSORS)
    places = data.draw(st.lists(st.integers(0, 3), min_size=len(tensors), max_size=len(tensors)))
    assert grouped(tensors, places, names) == grouped(tensors, [0] * len(tensors), names)


VERDICTS = [
    *(pytest.param(family.tensors, family.config, family.files, id=family.name) for family in FAMILIES),
    pytest.param(
        {**stacked_unit("e.gate_up", 2, 128, 128), "e.gate_up.k_scale": ("F32", ()), "e.gate_up.v_scale": ("F32", ())},
        fp8_config(),
        {},
        id="scales-of-a-cache-below-a-bare-weight",
    ),
]


@pytest.mark.parametrize(("tree", "config", "files"), VERDICTS)
@pytest.mark.parametrize("seed", range(3))
def test_a_tree_has_one_verdict_in_any_split(tree: Tree, config: Any, files: Any, seed: int, tmp_path: Path) -> None:
    entries = list(tree.items())
    random.Random(seed).shuffle(entries)
    wholes = [
        judge(tmp_path, dict(entries), config, files=files, shards=shards)
        for shards in sorted({min(most, len(entries)) for most in (1, 2, 3, 99)})
    ]
    verdicts = [
        (whole.contract, whole.nearest, sorted((each.code, each.object.replace(whole.path, "")) for each in whole.violations))
        for whole in wholes
    ]
    assert verdicts == [verdicts[0]] * len(verdicts)
