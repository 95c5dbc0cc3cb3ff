"""A sidecar's name says what it is only beside the names that the registry lists for it."""

from __future__ import annotations

import pytest

from tensorhub_contracts import RegistryError
from tensorhub_contracts.registry.registry import load_registry, parse_registry
from tensorhub_contracts.registry.sidecar_names import SidecarNames
from tests.support.registry_texts import Table, changed, contract, small, to_toml

BLOCKWISE = "hf.fp8-blockwise@1"


@pytest.mark.parametrize(
    ("primary", "side", "sidecar"),
    [
        (".weight", ".weight_scale_inv", "_scale_inv"),
        ("", "_scale_inv", "_scale_inv"),
        (".weight", ".weight_scale", ".weight_scale"),
        (".weight_packed", ".weight_scale", ".weight_scale"),
        ("_blocks", "_scales", "_scales"),
        (".kernel", ".weight_scale", None),
        (".kernel", ".weight_scale_inv", None),
        ("", ".weight_scale", None),
        (".weight", "_scales", None),
        (".weight", ".k_scale", None),
        (".weight", ".factor", None),
    ],
)
def test_a_sidecar_belongs_only_to_a_tensor_that_its_leaf_lists(primary: str, side: str, sidecar: str | None) -> None:
    registry = load_registry()
    assert SidecarNames(registry.sidecars, registry.payloads).relative_to(primary, side) == sidecar


def test_a_form_whose_scale_no_leaf_puts_beside_its_weight_is_refused() -> None:
    """The sidecar is known; of a weight by another name it would be the scale of nothing, and every tree would be refused."""

    def change(tables: Table) -> None:
        contract(tables, BLOCKWISE)["form"][0]["tensors"]["weight"]["name"] = "{module}.kernel"

    with pytest.raises(RegistryError) as caught:
        parse_registry(to_toml(changed(small(), change)))
    (problem,) = caught.value.problems
    assert "form.matrix.tensors.scale.name: no [[sidecar]] describes '.weight_scale_inv' beside '.kernel'" in problem
