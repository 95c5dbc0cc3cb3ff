"""`DecoderContractTests`: what every decoder of every contract must pass, whoever wrote it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tensorhub_contracts.checkpoints.geometry import BITS
from tensorhub_contracts.inspection.inspector import inspect
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.lanes.derive import derive_execution_lanes
from tensorhub_contracts.lanes.requirements import missing_requirements
from tensorhub_contracts.plugins.host import installed_plugins
from tensorhub_contracts.plugins.loader import RegisteredDecoder
from tensorhub_contracts.registry.contract import Contract
from tensorhub_contracts.registry.names import parse_lane
from tensorhub_contracts.registry.registry import Registry
from tensorhub_contracts.testing.comparing import by_name, first_difference, first_of_each_form, in_dtype, moved_by_one, stored_tensor
from tensorhub_contracts.testing.environments import derived_lanes, plugins_without_torch
from tensorhub_contracts.testing.header_faults import HEADER_FAULTS
from tensorhub_contracts.testing.numbers import rounded_to_f32
from tensorhub_contracts.testing.reference_formulas import FORMULAS
from tensorhub_contracts.testing.sample_units import SampleUnit, StoredTensor, sample_units, unquantized_tensors, write_tree

#: What decoded weights may be, by the bits of the activations that they meet.
_DTYPES = {16: ("BF16", "F16"), 32: ("F32",)}


class DecoderContractTests:
    """Subclass it in a test module, set `contract`, and pytest runs the suite on the installed decoder of that contract.

    The decoder is found as production finds it: through entry points. Set `decoder` to its `module:qualname` if
    several read the contract. Override `reference` unless the contract's reference dequant is one of the shipped ones,
    and `decode` if the decoder is not called as `decode` describes.
    """

    contract: ClassVar[str]
    decoder: ClassVar[str] = ""

    def reference(self, unit: SampleUnit) -> list[float]:
        """Return what the weight of a unit means, element by element, row-major, exact or rounded to F32.

        Write it from the contract's formula, in plain Python, and not with the decoder: it is what the decoder is
        judged by. By default the shipped formula that the contract names.
        """
        name = self._facts().reference_dequant
        assert name in FORMULAS, f"{name} is not a shipped reference dequant: override `reference` with its formula"
        return FORMULAS[name](unit)

    def decode(self, inspection: Inspection, *, lane: str, dtype: str) -> Iterable[tuple[str, Any, str]]:
        """Call the decoder: it takes an inspection, `lane` and `dtype`, and yields name, tensor and compute path.

        Every weight comes under its own name, decoded to `dtype` (BF16, F16 or F32); tensors that nothing scales come
        as they are stored, or, in a contract without units, matrices in `dtype`; scales do not come. The compute path
        of a weight names what computed it; that of a tensor that is as it is stored is empty.
        """
        decoded: Iterable[tuple[str, Any, str]] = self._registered().function(inspection, lane=lane, dtype=dtype)
        return decoded

    # --- the declaration

    def test_plugins_load_where_torch_cannot_be_imported(self) -> None:
        """Discovery runs in builds and hubs that have no torch."""
        registered = self._registered()
        states = plugins_without_torch()
        held = [(name, decoders) for name, _, _, decoders in states if (registered.name, self.contract) in decoders]
        assert held, [f"{name} is {state}: {reason}" for name, state, reason, _ in states if state != "loaded"]

    def test_the_declaration_is_that_of_the_registered_contract(self) -> None:
        """The digest that the decoder declares is the one that inspections prove."""
        declared = self._registered().declaration
        assert declared.contract == self.contract
        assert declared.digest == self._registry().digest(self.contract)
        assert set(declared.serves) <= set(self._facts().floors)

    def test_what_the_decoder_requires_is_installed(self) -> None:
        """Without it nothing below could be judged."""
        assert missing_requirements(self._registered().declaration.requires) == ()

    def test_lanes_are_the_same_however_they_are_derived(self) -> None:
        """Neither the order of `sys.path` nor that of hashes changes a byte."""
        first, record = derived_lanes(reverse=False, hash_seed="0")
        second, _ = derived_lanes(reverse=True, hash_seed="4711")
        assert first == second
        entries = [entry for entry in record["contracts"] if entry["contract"] == self.contract]
        assert self._registered().name in [entry["decoder"] for entry in entries]

    # --- headers

    def test_a_sound_tree_is_accepted(self, tmp_path: Path) -> None:
        """The control beside the faults below: the same trees, undamaged."""
        inspection = inspect(self._tree(tmp_path / "sound"), contract=self.contract)
        assert inspection.violations == ()
        assert inspection.contract == self.contract
        assert inspection.unit_count == len(list(sample_units(self._facts())))

    def test_damaged_units_are_refused_by_name(self, tmp_path: Path) -> None:
        """A unit of each form with a wrong sidecar, rank, grid or dtype, or without its scale: the refusal must name it."""
        facts = self._facts()
        judged = []
        wrong = []
        for unit in first_of_each_form(sample_units(facts)):
            for fault, damage in HEADER_FAULTS.items():
                damaged = damage(unit, facts, self._registry())
                if damaged is not None:
                    judged.append(f"{fault} in form {unit.form}")
                    sound = {name: tensor for name, tensor in self._tensors().items() if name not in unit.names.values()}
                    folder = write_tree(tmp_path / f"{unit.form} {fault}", facts, {**sound, **damaged})
                    inspection = inspect(folder, contract=self.contract)
                    named = {violation.object for violation in inspection.violations}
                    if inspection.accepted or not named & {*damaged, *unit.names.values()}:
                        wrong.append(f"{judged[-1]}: {inspection.codes or 'accepted'}")
        assert not wrong, wrong
        assert judged or not facts.form

    def test_a_tree_of_another_layout_is_refused(self, tmp_path: Path) -> None:
        """A matrix of F64 and one of E5M2 are in no contract."""
        for dtype in ("F64", "F8_E5M2"):
            stranger = {"model.stranger.weight": StoredTensor(dtype, (3, 5), bytes(15 * BITS[dtype] // 8))}
            inspection = inspect(write_tree(tmp_path / dtype, self._facts(), {**self._tensors(), **stranger}), contract=self.contract)
            assert not inspection.accepted, f"a matrix of {dtype} was accepted"
            assert "model.stranger.weight" in "".join(map(str, inspection.violations)), inspection.codes

    # --- numbers

    def test_decoded_weights_are_exact(self, tmp_path: Path) -> None:
        """Every weight, in every lane that upcasts and every dtype of it, equals the reference bit for bit."""
        units = {unit.names["weight"]: unit for unit in sample_units(self._facts())}
        exact = {name: [rounded_to_f32(value) for value in self.reference(unit)] for name, unit in units.items()}
        inspection = inspect(self._tree(tmp_path / "sound"), contract=self.contract)
        for lane, dtype in self._ways():
            decoded = by_name(self.decode(inspection, lane=lane, dtype=dtype))
            for name, numbers in exact.items():
                stored = stored_tensor(decoded[name])
                assert stored.shape == units[name].tensors["weight"].shape or math.prod(stored.shape) == len(numbers), name
                assert stored.dtype == dtype, f"{name} in {lane}: {stored.dtype}"
                assert not first_difference(stored, numbers), f"{name} in {lane} as {dtype}: {first_difference(stored, numbers)}"

    def test_nothing_is_lost_and_no_scale_is_left_over(self, tmp_path: Path) -> None:
        """What comes out is every tensor but the scales; what nothing scales has the values that it is stored with."""
        inspection = inspect(self._tree(tmp_path / "sound"), contract=self.contract)
        sidecars = {name for unit in sample_units(self._facts()) for role, name in unit.names.items() if role != "weight"}
        tensors = self._tensors()
        for lane, dtype in self._ways():
            decoded = list(self.decode(inspection, lane=lane, dtype=dtype))
            assert sorted(name for name, _, _ in decoded) == sorted(set(tensors) - sidecars)
            for name, tensor in unquantized_tensors(self._facts()).items():
                stored = stored_tensor(by_name(decoded)[name])
                expected = tensor if self._facts().form or len(tensor.shape) < 2 else in_dtype(dtype, tensor)
                assert (stored.dtype, stored.shape, stored.data) == (expected.dtype, expected.shape, expected.data), name

    def test_what_computed_a_weight_is_reported(self, tmp_path: Path) -> None:
        """A unit has a compute path, `cpu.…` or `cuda.…`; a tensor that is as it is stored has none."""
        inspection = inspect(self._tree(tmp_path / "sound"), contract=self.contract)
        tensors = self._tensors()
        units = {unit.names["weight"] for unit in sample_units(self._facts())}
        for lane, dtype in self._ways():
            for name, tensor, compute_path in self.decode(inspection, lane=lane, dtype=dtype):
                computed = name in units or stored_tensor(tensor).data != tensors[name].data
                assert bool(re.fullmatch(r"(cpu|cuda)(\.[a-z0-9_]+)+", compute_path)) == computed, f"{name}: {compute_path!r}"

    def test_a_wrong_scale_would_be_seen(self, tmp_path: Path) -> None:
        """The control of the comparison itself: the reference with scales, or rows, moved by one place must not agree."""
        units = [unit for unit in sample_units(self._facts()) if unit.symbols.get("out", 0) > 1 and unit.symbols.get("in", 0) > 1]
        inspection = inspect(self._tree(tmp_path / "sound"), contract=self.contract)
        lane, dtype = self._ways()[0]
        decoded = by_name(self.decode(inspection, lane=lane, dtype=dtype))
        for unit in units:
            role = (
                "scale" if len(set(unit.tensors.get("scale", unit.tensors["weight"]).values)) > 1 and "scale" in unit.tensors else "weight"
            )
            numbers = [rounded_to_f32(value) for value in self.reference(moved_by_one(unit, role))]
            assert first_difference(stored_tensor(decoded[unit.names["weight"]]), numbers), (
                f"{unit.names['weight']}: a moved {role} changes nothing"
            )

    # --- what they share

    def _registry(self) -> Registry:
        return installed_plugins().registry

    def _facts(self) -> Contract:
        contracts = self._registry().contracts
        assert self.contract in contracts, f"no installed plugin owns {self.contract}{self._registry().unavailable_note}"
        return contracts[self.contract]

    def _registered(self) -> RegisteredDecoder:
        """Return the decoder under test as it is registered."""
        decoders = [
            registered
            for plugin in installed_plugins().loaded
            for registered in plugin.decoders
            if registered.declaration.contract == self.contract
        ]
        decoders = [registered for registered in decoders if self.decoder in ("", registered.name)]
        assert decoders, f"no installed plugin decodes {self.contract}{self._registry().unavailable_note}"
        assert len(decoders) == 1, f"several decoders read it, set `decoder` to one of {[registered.name for registered in decoders]}"
        return decoders[0]

    def _ways(self) -> list[tuple[str, str]]:
        """Return the lanes of the decoder that upcast weights, each with the dtypes that it has."""
        entries = [entry for entry in derive_execution_lanes().contracts if entry.decoder == self._registered().name]
        lanes = [lane for entry in entries if entry.contract == self.contract for lane in entry.all_lanes]
        ways = [(lane, dtype) for lane in lanes for dtype in _DTYPES.get(parse_lane(lane).activation_bits, ())]
        if not ways:
            pytest.skip(f"no lane of {lanes} upcasts weights: compare the outputs of its kernels with the reference")
        return ways

    def _tensors(self) -> dict[str, StoredTensor]:
        units = (zip(unit.names.values(), unit.tensors.values(), strict=True) for unit in sample_units(self._facts()))
        return {**unquantized_tensors(self._facts()), **{name: tensor for pairs in units for name, tensor in pairs}}

    def _tree(self, folder: Path) -> Path:
        return write_tree(folder, self._facts(), self._tensors())
