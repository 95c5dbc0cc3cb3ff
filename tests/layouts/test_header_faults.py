"""Every contract of the registry, sound and damaged: the samples and faults of the conformance kit, decoder or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorhub_contracts import inspect
from tensorhub_contracts.registry.contract import Contract
from tensorhub_contracts.registry.registry import load_registry
from tensorhub_contracts.testing.header_faults import HEADER_FAULTS
from tensorhub_contracts.testing.sample_units import SampleUnit, StoredTensor, sample_units, unquantized_tensors, write_tree

REGISTRY = load_registry()
QUANTIZED = [contract for contract in REGISTRY.contracts.values() if contract.quantized]


def tensors_of(contract: Contract, units: list[SampleUnit]) -> dict[str, StoredTensor]:
    found = unquantized_tensors(contract)
    for unit in units:
        found |= {unit.names[role]: tensor for role, tensor in unit.tensors.items()}
    return found


def first_of_each_form(contract: Contract) -> list[SampleUnit]:
    return list({unit.form: unit for unit in reversed(list(sample_units(contract)))}.values())


@pytest.mark.parametrize("contract", QUANTIZED, ids=lambda contract: contract.handle)
def test_a_sound_sample_is_in_its_contract(contract: Contract, tmp_path: Path) -> None:
    units = list(sample_units(contract))
    assert {unit.form for unit in units} == {form.name for form in contract.form}
    inspection = inspect(write_tree(tmp_path, contract, tensors_of(contract, units)), contract=contract.handle)
    assert inspection.codes == (), inspection.violations
    assert inspection.unit_count == len(units)


@pytest.mark.parametrize("fault", HEADER_FAULTS)
@pytest.mark.parametrize("contract", QUANTIZED, ids=lambda contract: contract.handle)
def test_a_damaged_unit_is_refused_by_name(contract: Contract, fault: str, tmp_path: Path) -> None:
    units = list(sample_units(contract))
    for unit in first_of_each_form(contract):
        damaged = HEADER_FAULTS[fault](unit, contract, REGISTRY)
        if damaged is None:
            assert contract.whole_tree or fault in ("wrong weight dtype", "wrong grid"), "every scaled unit can have this fault"
            continue
        others = [each for each in units if each != unit]
        inspection = inspect(
            write_tree(tmp_path / unit.form, contract, {**tensors_of(contract, others), **damaged}), contract=contract.handle
        )
        assert inspection.codes, f"{fault} in form {unit.form} is accepted"
        named = {violation.object for violation in inspection.violations}
        assert named & {*damaged, *unit.names.values()}, inspection.codes
