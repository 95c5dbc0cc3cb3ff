"""Judges the geometry of a unit against one contract: which form it is in, or everything that differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import attrs

from tensorhub_contracts.checkpoints.geometry import write_shape
from tensorhub_contracts.inspection.units.scale_shapes import describe_grid, explain_grid
from tensorhub_contracts.inspection.units.tensor_groups import Sidecar, UnitGeometry
from tensorhub_contracts.readable import Readable
from tensorhub_contracts.registry.contract import Contract, Form, TensorFacts
from tensorhub_contracts.registry.shape_patterns import bind, expand, write_pattern
from tensorhub_contracts.registry.sidecar_names import SidecarNames


@attrs.frozen(slots=False, repr=False)
class Finding(Readable):
    """What is wrong with every unit of a geometry."""

    code: str
    #: The suffix of the sidecar concerned, or empty for the weight.
    sidecar: str
    expected: str
    found: str
    #: What to do, where that is more than the list of codes says.
    remedy: str = ""


@attrs.frozen(slots=False, repr=False, cache_hash=True)
class UnitLayout(Readable):
    """The facts of a unit that was proved to be in a contract; all units of a geometry share one."""

    contract: str
    #: The name of the contract's form that it is in.
    form: str
    weight_dtype: str
    #: In stored elements.
    weight_shape: tuple[int, ...]
    #: What the name of the weight's scale ends in; empty, as is its dtype, where the contract has no scale.
    scale_name: str
    scale_dtype: str
    #: The shape of the scale.
    grid: tuple[int, ...]
    #: Rows and columns, from the contract. Blocks are counted from row 0 and column 0 of the stored weight, for each expert anew.
    block: tuple[int, int] | None
    #: 1, unless the weight is a stack.
    experts: int
    sidecars: tuple[Sidecar, ...]

    @property
    def orientation_shown(self) -> bool:
        """Whether the grid's shape tells it from its transpose: not if it has as many blocks down as across, above one."""
        return self.block is None or len(self.grid) < 2 or self.grid[-1] != self.grid[-2] or self.grid[-1] == 1


class UnitJudge:
    """Judges the geometry of units against the contracts of a registry."""

    def __init__(self, sidecar_names: SidecarNames) -> None:
        self._sidecar_names = sidecar_names
        self._sidecars_of_form: dict[tuple[str, str], dict[str, TensorFacts]] = {}

    def judge(self, unit: UnitGeometry, contract: Contract) -> UnitLayout | tuple[Finding, ...]:
        """Return the unit's layout if it is in the contract, else what differs from the closest form."""
        forms: tuple[Form, ...] = contract.form
        if "{number}" in unit.suffix:
            forms = tuple(form for form in forms if form.numbered)
            if not forms:
                return (_shared(unit),)
        best: tuple[Finding, ...] = ()
        for form in forms:
            findings = tuple(self._findings(unit, contract, form))
            if not findings:
                return self._layout(unit, contract, form)
            if not best or _distance(findings) < _distance(best):
                best = findings
        return best

    def sidecars_of(self, contract: Contract, form: Form) -> dict[str, TensorFacts]:
        """Map the sidecar suffix of each sidecar of a form to its facts."""
        key = (contract.handle, form.name)
        if key not in self._sidecars_of_form:
            self._sidecars_of_form[key] = {
                (facts.name if form.numbered else self._sidecar_names.relative_to(form.primary.suffix, facts.suffix) or facts.suffix): facts
                for role, facts in form.tensors.items()
                if role != "weight"
            }
        return self._sidecars_of_form[key]

    def _layout(self, unit: UnitGeometry, contract: Contract, form: Form) -> UnitLayout:
        scale = next((each for each in unit.sidecars if self.role(each.name) == "weight-scale"), None)
        symbols = next((found for pattern in form.primary.patterns if (found := bind(pattern, unit.shape)) is not None), {})
        return UnitLayout(
            contract=contract.handle,
            form=form.name,
            weight_dtype=unit.dtype,
            weight_shape=unit.shape,
            scale_name=scale.name.removeprefix("{module}") if scale else "",
            scale_dtype=scale.dtype if scale else "",
            grid=scale.shape if scale else (),
            block=contract.block if _in_blocks(form) else None,
            experts=symbols.get("experts", 1),
            sidecars=unit.sidecars,
        )

    def role(self, suffix: str) -> str:
        """Return what a sidecar whose name ends in `suffix` means."""
        suffix = suffix.removeprefix("{module}")
        return next(sidecar.role for sidecar in self._sidecar_names.sidecars if sidecar.suffix == suffix)

    def _findings(self, unit: UnitGeometry, contract: Contract, form: Form) -> Iterator[Finding]:
        primary = form.primary
        if primary.suffix and unit.suffix != primary.suffix:
            found = f"a name that ends in {unit.suffix}" if unit.suffix else "a bare parameter name"
            yield Finding(code="weight-name", sidecar="", expected=f"a name like {primary.name}", found=found)
        if unit.dtype not in primary.dtypes:
            expected, remedy = " or ".join(primary.dtypes), _dtype_remedy(unit.dtype)
            yield Finding(code="weight-dtype", sidecar="", expected=expected, found=unit.dtype, remedy=remedy)
        symbols = next((bound for pattern in primary.patterns if (bound := bind(pattern, unit.shape)) is not None), None)
        if symbols is None:
            yield _weight_shape(primary, unit.shape)
        else:
            for symbol, factor in contract.multiple_of.items():
                if symbols.get(symbol, 0) % factor:
                    found = f"{symbol} = {symbols[symbol]}"
                    yield Finding(code="weight-alignment", sidecar="", expected=f"{symbol} a multiple of {factor}", found=found)
        wanted = self.sidecars_of(contract, form)
        yield from self._missing(unit, wanted)
        for sidecar in unit.sidecars:
            if sidecar.name not in wanted:
                yield self._unwanted(unit, sidecar, wanted)
        for sidecar in unit.sidecars:
            if sidecar.name in wanted:
                yield from _sidecar_findings(unit, sidecar, wanted[sidecar.name], symbols)

    def _missing(self, unit: UnitGeometry, wanted: Mapping[str, TensorFacts]) -> Iterator[Finding]:
        """Yield each sidecar that is not there; a weight scale that is there under another name is reported as that."""
        present = {sidecar.name for sidecar in unit.sidecars}
        renamed = any(self.role(name) == "weight-scale" for name in present - wanted.keys())
        for name, facts in wanted.items():
            if name not in present and not facts.optional and not (renamed and self.role(name) == "weight-scale"):
                expected = f"{' or '.join(facts.dtypes)} {write_pattern(facts.patterns[0])}"
                found = f"no such tensor beside {unit.dtype} {write_shape(unit.shape)}"
                yield Finding(code="scale-missing", sidecar=name, expected=expected, found=found)

    def _unwanted(self, unit: UnitGeometry, sidecar: Sidecar, wanted: Mapping[str, TensorFacts]) -> Finding:
        """A sidecar that the form does not have: a second scale, a scale of another layout, or a forbidden sidecar."""
        found = f"{sidecar.dtype} {write_shape(sidecar.shape)}"
        found += f": {words}" if (words := describe_grid(unit.shape, sidecar.shape)) else ""
        scales = [name for name in wanted if self.role(name) == "weight-scale"]
        if self.role(sidecar.name) != "weight-scale":
            return Finding(code="sidecar-forbidden", sidecar=sidecar.name, expected="no such tensor in this contract", found=found)
        if not scales:
            return Finding(code="scale-name-foreign", sidecar=sidecar.name, expected="no scale in this contract", found=found)
        if any(each.name in scales for each in unit.sidecars):
            expected = f"one scale, {scales[0]}"
            return Finding(code="scale-ambiguous", sidecar=sidecar.name, expected=expected, found=f"a second one, {found}")
        return Finding(code="scale-name-foreign", sidecar=sidecar.name, expected=f"the scale in {scales[0]}", found=found)


def _in_blocks(form: Form) -> bool:
    """Whether scales of a form are of blocks: not where one scale belongs to a whole weight, whatever the contract's other forms do."""
    scale = form.tensors.get("scale")
    return scale is not None and any(dimension.divisor > 1 for pattern in scale.patterns for dimension in pattern)


def _shared(unit: UnitGeometry) -> Finding:
    """A weight that shares a sidecar of its module, in a contract in which each weight has its own."""
    sidecars = ", ".join(f"{each.name} {each.dtype} {write_shape(each.shape)}" for each in unit.sidecars)
    found = f"a weight named {{module}}{unit.suffix}, which shares {sidecars}"
    return Finding(code="scale-shared", sidecar="", expected="a weight with sidecars of its own", found=found)


def _sidecar_findings(unit: UnitGeometry, sidecar: Sidecar, facts: TensorFacts, symbols: Mapping[str, int] | None) -> Iterator[Finding]:
    """Yield what is wrong with a sidecar that the form has; its shape is judged only if the weight's is right."""
    if sidecar.dtype not in facts.dtypes:
        yield Finding(code="scale-dtype", sidecar=sidecar.name, expected=" or ".join(facts.dtypes), found=sidecar.dtype)
    shapes = [expand(pattern, symbols, sidecar.shape) for pattern in facts.patterns] if symbols is not None else []
    if symbols is not None and sidecar.shape not in shapes:
        of_its_rank = (shape for shape in shapes if len(shape) == len(sidecar.shape) and math.prod(shape) > 1)
        nearest = next(of_its_rank, shapes[0])
        code, why = explain_grid(_logical(unit.shape, symbols), sidecar.shape, nearest)
        expected = " or ".join(map(write_shape, shapes)) + f" for weight {write_shape(unit.shape)}"
        yield Finding(code=code, sidecar=sidecar.name, expected=expected, found=write_shape(sidecar.shape) + (f": {why}" if why else ""))


def _logical(shape: tuple[int, ...], symbols: Mapping[str, int]) -> tuple[int, ...]:
    """Return the weight's shape in elements: a packed one holds more of them than it has bytes."""
    return (*shape[:-2], symbols["out"], symbols["in"]) if len(shape) > 1 and {"out", "in"} <= symbols.keys() else shape


def _distance(findings: tuple[Finding, ...]) -> tuple[int, int]:
    """How far a unit is from a form: a form for weights of another rank is further than any other."""
    return (sum(finding.code in ("weight-rank", "weight-name") for finding in findings), len(findings))


def _weight_shape(primary: TensorFacts, shape: tuple[int, ...]) -> Finding:
    patterns, found = " or ".join(map(write_pattern, primary.patterns)), write_shape(shape)
    if 0 in shape:
        return Finding(code="weight-empty", sidecar="", expected=f"{patterns}, every dimension above 0", found=found)
    if all(len(pattern) != len(shape) for pattern in primary.patterns):
        return Finding(code="weight-rank", sidecar="", expected=patterns, found=found)
    return Finding(code="weight-shape", sidecar="", expected=patterns, found=found)


def _dtype_remedy(dtype: str) -> str:
    """Return what to do about a weight of another dtype, where that is more than the list of codes says."""
    if dtype.endswith("FNUZ"):
        return "FNUZ bytes mean half as much: read them as what they are, in another contract."
    if dtype == "F8_E5M2":
        return "E5M2 bytes have other exponents: they belong to another contract."
    return ""
