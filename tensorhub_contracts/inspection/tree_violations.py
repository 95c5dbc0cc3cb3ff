"""Violations of the whole tree: empty, mixed, left-over sidecars, units that differ, a contract that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.geometry import write_shape
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.inspection.declarations import declared_block
from tensorhub_contracts.inspection.grouping import Signature, TensorGroups
from tensorhub_contracts.inspection.prefixes import prefix_of
from tensorhub_contracts.inspection.scale_shapes import block_grid, describe_grid
from tensorhub_contracts.inspection.unit_matching import Finding, UnitLayout
from tensorhub_contracts.inspection.unit_violations import Siblings
from tensorhub_contracts.registry.contract import Contract, SidecarName


def empty_violations(checkpoint: Checkpoint, groups: TensorGroups) -> Iterator[Violation]:
    """A tree without a floating-point tensor is in no layout: that nothing is wrong with it proves nothing.

    Scales of a key or value cache are no weights, and nothing judges them.
    """
    if not checkpoint.tensor_count:
        remedy = "Point at the checkpoint's weights."
        yield Violation(code="no-tensors", object=checkpoint.path, expected="at least one tensor", found="none in any shard", remedy=remedy)
    elif not (groups.unquantized or groups.quantized or groups.orphans):
        remedy = "Point at a model's weights."
        yield Violation(
            code="layout-unknown",
            object=checkpoint.path,
            expected="floating-point or packed weights",
            found=f"{checkpoint.tensor_count} tensors of other kinds",
            remedy=remedy,
        )


def layout_violations(candidates: Candidates, contract: Contract) -> Iterator[Violation]:
    """Everything in the bytes that is not as the contract says: mixed units first, then unit by unit, then orphans."""
    yield from _mixed(candidates, contract)
    yield from _declared_block_disagrees(candidates, contract)
    if contract.quantized and not candidates.quantized:
        found = f"{len(candidates.groups.unquantized):,} unquantized tensors and no quantized one"
        remedy = "Take the configuration from the export that wrote the weights: an unquantized checkpoint declares no quantization."
        yield Violation(
            code="units-missing",
            object=candidates.checkpoint.path,
            expected=f"at least one unit of {contract.handle}",
            found=found,
            remedy=remedy,
        )
    judgements = candidates.judged(contract.handle)
    siblings = Siblings(candidates.checkpoint.shard_of, candidates.registry)
    for signature, names in candidates.groups.quantized.items():
        judgement = judgements.get(signature)
        if judgement is None:
            found = f"{signature[1]} {write_shape(signature[2])}"
            finding = Finding(
                code="weight-dtype",
                sidecar="",
                expected=f"no quantized tensor in {contract.handle}",
                found=found,
                remedy="Read the checkpoint as the contract it is in.",
            )
            judgement = (finding,)
        if not isinstance(judgement, UnitLayout):
            resembles = _resembles(candidates, signature, contract)
            for finding in judgement:
                for name in names:
                    yield _unit_violation(candidates, finding, name, resembles, siblings)
    for name, sidecar in candidates.groups.orphans:
        yield _orphan(candidates, name, sidecar)


def contract_violations(candidates: Candidates, contract: Contract, wanted: Contract | None, *, refused: bool) -> Iterator[Violation]:
    """A contract that was asked for and is not the one found, or one that was found and that nothing here reads."""
    if wanted is not None and refused and candidates.full and contract.handle not in candidates.full:
        declared = ", ".join(sorted(candidates.declared.handles)) or "nothing that the registry knows"
        found = f"declared: {declared}; bytes: {_looks_like(candidates)}"
        remedy = f"Inspect it without naming a contract, or accept {' or '.join(candidates.full)}."
        yield Violation(
            code="contract-mismatch",
            object=candidates.checkpoint.path,
            expected=contract.handle,
            found=found,
            remedy=remedy,
            resembles=candidates.full[0],
        )
    if not refused and contract.handle not in candidates.registry.decoded:
        found = f"{contract.handle}: {_looks_like(candidates)}"
        remedy = f"Install a plugin whose decoder reads {contract.handle}, or use an export in a contract that has a decoder."
        remedy += candidates.registry.unavailable_note
        expected = "a contract that has a decoder here"
        yield Violation(
            code="contract-without-decoder",
            object=candidates.checkpoint.path,
            expected=expected,
            found=found,
            remedy=remedy,
            resembles=contract.handle,
        )
    elif refused and wanted is None and candidates.full:
        found = _looks_like(candidates)
        remedy = "Correct what the other violations name; the bytes alone are consistent."
        if contract.handle not in candidates.full or not candidates.declared.by_source:
            yield Violation(
                code="layout-undeclared",
                object=candidates.checkpoint.path,
                expected="a declaration that agrees with the bytes",
                found=found,
                remedy=remedy,
                resembles=candidates.full[0],
            )


def describe_signature(signature: Signature) -> str:
    """Write a unit's tensors for a message: weight, then each sidecar with what its shape looks like."""
    suffix, dtype, shape, sides = signature
    parts = [f"{suffix or 'parameter'} {dtype} {write_shape(shape)}"]
    for sidecar, side_dtype, side_shape in sides:
        words = describe_grid(shape, side_shape)
        parts.append(f"{sidecar} {side_dtype} {write_shape(side_shape)}" + (f" ({words})" if words else ""))
    return ", ".join(parts)


def _looks_like(candidates: Candidates) -> str:
    signature = next(iter(candidates.groups.quantized), None)
    if signature is None:
        return "no unit: nothing in the tree is quantized"
    known = " or ".join(candidates.full[:2])
    return f"units like {describe_signature(signature)}" + (f", as in {known}" if known else "")


def _family(candidates: Candidates, signature: Signature) -> tuple[str, ...] | None:
    """Return what kind of unit a signature is, coarsely: storage and the names of its scales; None if that is unclear."""
    _, dtype, _, sides = signature
    scales = tuple(sorted(side[0] for side in sides if candidates.judge.role(side[0]) in ("weight-scale", "global-scale")))
    if sum(candidates.judge.role(each) == "weight-scale" for each in scales) != 1:
        return None
    return ("F8" if dtype.startswith("F8") else dtype, *scales)


def _mixed(candidates: Candidates, contract: Contract) -> Iterator[Violation]:
    """More than one quantized layout in one tree: units of different families, or proved in different contracts."""
    if candidates.is_full(contract.handle):
        return
    families: dict[tuple[str, ...], list[Signature]] = {}
    for signature in candidates.groups.quantized:
        family = _family(candidates, signature)
        if family is not None:
            in_contracts = tuple(_contracts_of(candidates, signature))
            families.setdefault((*family, *in_contracts) if in_contracts else family, []).append(signature)
    kinds = {_head(key) for key in families}
    proved = [set(_contracts_of(candidates, signatures[0])) for signatures in families.values()]
    proved = [each for each in proved if each]
    disjoint = len(proved) > 1 and not set.intersection(*proved)
    orphan_kinds = {("orphan", sidecar.suffix) for _, sidecar in candidates.groups.orphans if sidecar.role == "weight-scale"}
    foreign = {kind for kind in orphan_kinds if all(kind[1] not in head for head in kinds)} if kinds else set()
    if (len(kinds) < 2 or _one_contract_has(candidates, families)) and not disjoint and not foreign:
        return
    table = "; ".join(f"{prefix}: {count:,} x {what}" for (prefix, what), count in _table(candidates).items())
    remedy = "Split the tree by layout, or export all of it in one. No reader can take two layouts for one."
    yield Violation(
        code="layout-mixed", object=candidates.checkpoint.path, expected=f"one layout, {contract.handle}", found=table, remedy=remedy
    )


def _one_contract_has(candidates: Candidates, families: dict[tuple[str, ...], list[Signature]]) -> bool:
    """Whether some contract has all these kinds of unit, as DeepSeek's FP8 bodies with FP4 experts do."""
    owners = [set(_contracts_of(candidates, signature)) for signatures in families.values() for signature in signatures]
    return bool(owners and set.intersection(*owners))


def _head(key: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part for part in key if "@" not in part)


def _contracts_of(candidates: Candidates, signature: Signature) -> list[str]:
    return [
        handle
        for handle in candidates.quantized_contracts
        if isinstance(candidates.judged(handle)[signature], UnitLayout) and not candidates.registry.contracts[handle].whole_tree
    ]


def _table(candidates: Candidates) -> dict[tuple[str, str], int]:
    """Count units by prefix and by what they look like: the table that shows a mixed tree."""
    table: dict[tuple[str, str], int] = {}
    for signature, names in candidates.groups.quantized.items():
        contracts = _contracts_of(candidates, signature)
        _, dtype, shape, sides = signature
        listed = ", ".join(f"{sidecar} {side_dtype} rank {len(side_shape)}" for sidecar, side_dtype, side_shape in sides) or "no scale"
        what = f"{dtype} rank {len(shape)} with {listed}" + (f" ({contracts[0]})" if contracts else "")
        for name in names:
            key = (prefix_of(name), what)
            table[key] = table.get(key, 0) + 1
    for name, sidecar in candidates.groups.orphans:
        key = (prefix_of(name), f"{sidecar.suffix} without a quantized weight")
        table[key] = table.get(key, 0) + 1
    return table


def _declared_block_disagrees(candidates: Candidates, contract: Contract) -> Iterator[Violation]:
    """A declared block that is not the contract's: say what it asks for and what is there, for one unit of each shape."""
    declared = declared_block(candidates.checkpoint.declarations)
    if contract.block is None or declared is None or declared == contract.block:
        return
    for signature, names in candidates.groups.quantized.items():
        _, _, shape, sides = signature
        scale = next((each for each in sides if candidates.judge.role(each[0]) == "weight-scale"), None)
        if scale is None or len(shape) < 2:
            continue
        needed = block_grid(shape, declared)
        if needed != write_shape(scale[2]):
            expected = f"grid {needed} for weight {write_shape(shape)} under the declared block {write_shape(declared)}"
            remedy = "Take configuration and weights from one export; the block is never inferred from shapes."
            yield Violation(
                code="declaration-contradicts-grid",
                object=names[0] + scale[0],
                expected=expected,
                found=write_shape(scale[2]),
                remedy=remedy,
                shard=candidates.checkpoint.shard_of[names[0]],
            )


def _unit_violation(candidates: Candidates, finding: Finding, name: str, resembles: str, siblings: Siblings) -> Violation:
    tensors = candidates.checkpoint.tensors
    shown = _side_name(candidates, name, finding.sidecar) if finding.sidecar else name
    holder = shown if shown in tensors else name
    if finding.code == "scale-missing":
        unknown = siblings.unknown(name)
        if unknown:
            found = f"only {unknown} beside it"
            remedy = "If this is the scale, the layout is one that the registry does not know: a plugin can declare it."
            return Violation(
                code="scale-name-unknown",
                object=name,
                expected=f"a scale named {shown}",
                found=found,
                remedy=remedy,
                shard=candidates.checkpoint.shard_of[name],
            )
        shown = name
    return Violation(
        code=finding.code,
        object=shown,
        expected=finding.expected,
        found=finding.found,
        remedy=finding.remedy,
        shard=candidates.checkpoint.shard_of[holder],
        resembles=resembles,
    )


def _side_name(candidates: Candidates, primary: str, sidecar_suffix: str) -> str:
    """Return the name of the sidecar with this sidecar that belongs to a primary tensor."""
    sidecar = next(each for each in candidates.registry.sidecars if each.suffix == sidecar_suffix)
    names = [primary[: len(primary) - len(beside)] + sidecar_suffix for beside in sidecar.beside if primary.endswith(beside)]
    return next((name for name in names if name in candidates.checkpoint.tensors), names[0] if names else primary + sidecar_suffix)


def _orphan(candidates: Candidates, name: str, sidecar: SidecarName) -> Violation:
    tensors, shard = candidates.checkpoint.tensors, candidates.checkpoint.shard_of[name]
    stem = name[: -len(sidecar.suffix)]
    entry = tensors[name]
    beside = next((stem + each for each in sidecar.beside if stem + each in tensors), "")
    what = f"{entry.dtype} {write_shape(entry.shape)}"
    if beside:
        found = f"{what} beside {beside}, which is {tensors[beside].dtype} and not quantized"
    else:
        found = f"{what} and no tensor that it could belong to"
    expected = f"a quantized tensor named {' or '.join(stem + each for each in sidecar.beside) or 'like it'}"
    remedy = "Restore the quantized weight, or remove the sidecar where the checkpoint is made."
    return Violation(code="scale-orphan", object=name, expected=expected, found=found, remedy=remedy, shard=shard)


def _resembles(candidates: Candidates, signature: Signature, contract: Contract) -> str:
    others = [handle for handle in _contracts_of(candidates, signature) if handle != contract.handle]
    return others[0] if others else ""
