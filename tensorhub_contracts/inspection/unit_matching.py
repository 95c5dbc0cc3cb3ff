"""Judges one signature against one contract: which form it is in, or everything that differs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tensorhub_contracts.checkpoints.geometry import write_shape
from tensorhub_contracts.inspection.grouping import Side, Signature
from tensorhub_contracts.inspection.scale_shapes import describe_grid, explain_grid
from tensorhub_contracts.registry.contract import Contract, Form, TensorFacts
from tensorhub_contracts.registry.shape_patterns import bind, expand, write_pattern
from tensorhub_contracts.registry.sidecar_names import SidecarNames


class Finding(msgspec.Struct, frozen=True):
    """What is wrong with every unit of a signature; `sidecar` is the suffix of the sidecar concerned, or empty for the weight."""

    code: str
    sidecar: str
    expected: str
    found: str
    remedy: str


class UnitLayout(msgspec.Struct, frozen=True):
    """The facts of a unit that was proved to be in a contract; all units of a signature share one.

    `weight_shape` is in stored elements. `scale_name`, `scale_dtype` and `grid` describe the weight's scale, empty
    where the contract has none; `experts` is 1 unless the weight is stacked. `block` is the contract's: rows, columns.
    Blocks are counted from row 0 and column 0 of the stored weight, for each expert anew.
    """

    contract: str
    form: str
    weight_dtype: str
    weight_shape: tuple[int, ...]
    scale_name: str
    scale_dtype: str
    grid: tuple[int, ...]
    block: tuple[int, int] | None
    experts: int
    sides: tuple[Side, ...]

    @property
    def orientation_shown(self) -> bool:
        """Whether the grid's shape tells it from its transpose: not if it has as many blocks down as across, above one."""
        return self.block is None or len(self.grid) < 2 or self.grid[-1] != self.grid[-2] or self.grid[-1] == 1


class UnitJudge:
    """Judges signatures against the contracts of a registry."""

    def __init__(self, sidecar_names: SidecarNames) -> None:
        self._leaf_names = sidecar_names
        self._sidecars_of_form: dict[tuple[str, str], dict[str, TensorFacts]] = {}

    def judge(self, signature: Signature, contract: Contract) -> UnitLayout | tuple[Finding, ...]:
        """Return the unit's layout if the signature is in the contract, else what differs from the closest form."""
        best: tuple[Finding, ...] = ()
        for form in contract.form:
            findings = tuple(self._findings(signature, contract, form))
            if not findings:
                return self._layout(signature, contract, form)
            if not best or _distance(findings) < _distance(best):
                best = findings
        return best

    def _sides_of(self, contract: Contract, form: Form) -> dict[str, TensorFacts]:
        """Map the sidecar suffix of each sidecar of a form to its facts."""
        key = (contract.handle, form.name)
        if key not in self._sidecars_of_form:
            self._sidecars_of_form[key] = {
                self._leaf_names.relative_to(form.primary.suffix, facts.suffix) or facts.suffix: facts
                for role, facts in form.tensors.items()
                if role != "weight"
            }
        return self._sidecars_of_form[key]

    def _layout(self, signature: Signature, contract: Contract, form: Form) -> UnitLayout:
        _, dtype, shape, sides = signature
        scale = next((each for each in sides if self.role(each[0]) == "weight-scale"), None)
        symbols = next((found for pattern in form.primary.patterns if (found := bind(pattern, shape)) is not None), {})
        return UnitLayout(
            contract=contract.handle,
            form=form.name,
            weight_dtype=dtype,
            weight_shape=shape,
            scale_name=scale[0] if scale else "",
            scale_dtype=scale[1] if scale else "",
            grid=scale[2] if scale else (),
            block=contract.block,
            experts=symbols.get("experts", 1),
            sides=sides,
        )

    def role(self, suffix: str) -> str:
        """Return what the sidecar with this sidecar means."""
        return next(sidecar.role for sidecar in self._leaf_names.sidecars if sidecar.suffix == suffix)

    def _findings(self, signature: Signature, contract: Contract, form: Form) -> Iterator[Finding]:
        suffix, dtype, shape, _sides = signature
        primary = form.primary
        if primary.suffix and suffix != primary.suffix:
            found = f"a name that ends in {suffix}" if suffix else "a bare parameter name"
            yield Finding(
                code="weight-name",
                sidecar="",
                expected=f"a name like {primary.name}",
                found=found,
                remedy="Rename it as the contract does, where it was made.",
            )
        if dtype not in primary.dtypes:
            yield Finding(code="weight-dtype", sidecar="", expected=" or ".join(primary.dtypes), found=dtype, remedy=_dtype_remedy(dtype))
        symbols = next((bound for pattern in primary.patterns if (bound := bind(pattern, shape)) is not None), None)
        if symbols is None:
            yield _weight_shape(primary, shape)
        else:
            for symbol, factor in contract.multiple_of.items():
                if symbols.get(symbol, 0) % factor:
                    expected = f"{symbol} a multiple of {factor}"
                    yield Finding(
                        code="weight-alignment",
                        sidecar="",
                        expected=expected,
                        found=f"{symbol} = {symbols[symbol]}",
                        remedy="Leave this weight unquantized.",
                    )
        yield from self._side_findings(signature, contract, self._sides_of(contract, form), symbols)

    def _side_findings(
        self, signature: Signature, contract: Contract, wanted: dict[str, TensorFacts], symbols: dict[str, int] | None
    ) -> Iterator[Finding]:
        _, dtype, shape, sides = signature
        present = {side[0] for side in sides}
        strange = [side for side in sides if side[0] not in wanted]
        strange_scale = any(self.role(side[0]) == "weight-scale" for side in strange)
        for sidecar, facts in wanted.items():
            if sidecar in present or facts.optional:
                continue
            if self.role(sidecar) == "weight-scale" and strange_scale:
                continue  # the scale is there under another name, and that is what is reported
            expected = f"{' or '.join(facts.dtypes)} {write_pattern(facts.patterns[0])}"
            found = f"no such tensor beside {dtype} {write_shape(shape)}"
            yield Finding(
                code="scale-missing",
                sidecar=sidecar,
                expected=expected,
                found=found,
                remedy="Restore the scale from the original; it is never assumed to be 1.",
            )
        for sidecar, side_dtype, side_shape in strange:
            yield self._strange(sidecar, side_dtype, side_shape, shape, wanted, present)
        for sidecar, side_dtype, side_shape in sides:
            if sidecar not in wanted:
                continue
            facts = wanted[sidecar]
            if side_dtype not in facts.dtypes:
                remedy = "Read it as what it is: exponents and 64-bit scales belong to other contracts."
                yield Finding(code="scale-dtype", sidecar=sidecar, expected=" or ".join(facts.dtypes), found=side_dtype, remedy=remedy)
            if symbols is not None:
                shapes = [expand(pattern, symbols, side_shape) for pattern in facts.patterns]
                if side_shape not in shapes:
                    code, why = explain_grid(_logical(shape, symbols), side_shape, shapes[0])
                    expected = " or ".join(map(write_shape, shapes)) + f" for weight {write_shape(shape)}"
                    found = write_shape(side_shape) + (f": {why}" if why else "")
                    yield Finding(
                        code=code,
                        sidecar=sidecar,
                        expected=expected,
                        found=found,
                        remedy="Take weight and scale from one export; a scale is never reshaped.",
                    )

    def _strange(
        self, sidecar: str, dtype: str, shape: tuple[int, ...], weight: tuple[int, ...], wanted: dict[str, TensorFacts], present: set[str]
    ) -> Finding:
        """A sidecar that the form does not have: a second scale, a scale of another layout, or a forbidden sidecar."""
        found = f"{dtype} {write_shape(shape)}" + (f": {why}" if (why := describe_grid(weight, shape)) else "")
        scales = [each for each in wanted if self.role(each) == "weight-scale"]
        if self.role(sidecar) != "weight-scale":
            remedy = "A tensor that the contract does not know changes how the weight is meant: remove it where the checkpoint is made."
            return Finding(
                code="sidecar-forbidden", sidecar=sidecar, expected="no such tensor in this contract", found=found, remedy=remedy
            )
        if not scales:
            return Finding(
                code="scale-name-foreign",
                sidecar=sidecar,
                expected="no scale in this contract",
                found=found,
                remedy="Read the checkpoint as the contract it is in.",
            )
        if any(each in present for each in scales):
            remedy = "Keep the one scale that the weight was quantized with."
            return Finding(
                code="scale-ambiguous", sidecar=sidecar, expected=f"one scale, {scales[0]}", found=f"a second one, {found}", remedy=remedy
            )
        remedy = "Read the checkpoint as the contract it is in; names are never aliased."
        return Finding(code="scale-name-foreign", sidecar=sidecar, expected=f"the scale in {scales[0]}", found=found, remedy=remedy)


def _logical(shape: tuple[int, ...], symbols: dict[str, int]) -> tuple[int, ...]:
    """Return the weight's shape in elements: a packed one holds more of them than it has bytes."""
    return (*shape[:-2], symbols["out"], symbols["in"]) if len(shape) > 1 and {"out", "in"} <= symbols.keys() else shape


def _distance(findings: tuple[Finding, ...]) -> tuple[int, int]:
    """How far a signature is from a form: a form for weights of another rank is further than any other."""
    return (sum(finding.code in ("weight-rank", "weight-name") for finding in findings), len(findings))


def _weight_shape(primary: TensorFacts, shape: tuple[int, ...]) -> Finding:
    patterns = " or ".join(map(write_pattern, primary.patterns))
    if 0 in shape:
        return Finding(
            code="weight-empty",
            sidecar="",
            expected=f"{patterns}, every dimension above 0",
            found=write_shape(shape),
            remedy="Remove the empty tensor.",
        )
    if all(len(pattern) != len(shape) for pattern in primary.patterns):
        return Finding(
            code="weight-rank",
            sidecar="",
            expected=patterns,
            found=write_shape(shape),
            remedy="Leave this tensor unquantized; the contract has no such unit.",
        )
    return Finding(
        code="weight-shape", sidecar="", expected=patterns, found=write_shape(shape), remedy="Take the weight from the original."
    )


def _dtype_remedy(dtype: str) -> str:
    if dtype.endswith("FNUZ"):
        return "FNUZ bytes mean half as much: read them as what they are, in another contract."
    if dtype == "F8_E5M2":
        return "E5M2 bytes have other exponents: they belong to another contract."
    return "Read the checkpoint as the contract it is in."
