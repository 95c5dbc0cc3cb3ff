"""Violations of the whole tree: empty, mixed, left-over sidecars, units that differ, a contract that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator

from tensorhub_contracts.checkpoints.checkpoint import Checkpoint
from tensorhub_contracts.checkpoints.geometry import write_shape
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.candidates import Evidence
from tensorhub_contracts.inspection.declarations import declared_block
from tensorhub_contracts.inspection.grouping import Signature, TensorGroups
from tensorhub_contracts.inspection.prefixes import prefix_of
from tensorhub_contracts.inspection.scale_shapes import block_grid, describe_grid
from tensorhub_contracts.inspection.unit_matching import Finding, UnitLayout
from tensorhub_contracts.inspection.unit_violations import Siblings
from tensorhub_contracts.registry.contract import Contract, Leaf


def empty_violations(checkpoint: Checkpoint, groups: TensorGroups) -> Iterator[Violation]:
    """A tree without a floating-point tensor is in no layout: that nothing is wrong with it proves nothing.

    Scales of a key or value cache are no weights, and nothing judges them.
    """
    if not checkpoint.tensor_count:
        remedy = "Point at the checkpoint's weights."
        yield Violation("no-tensors", checkpoint.path, "at least one tensor", "none in any shard", remedy)
    elif not (groups.dense or groups.quantized or groups.orphans):
        remedy = "Point at a model's weights."
        yield Violation(
            "layout-unknown",
            checkpoint.path,
            "floating-point or packed weights",
            f"{checkpoint.tensor_count} tensors of other kinds",
            remedy,
        )


def layout_violations(evidence: Evidence, contract: Contract) -> Iterator[Violation]:
    """Everything in the bytes that is not as the contract says: mixed units first, then unit by unit, then orphans."""
    yield from _mixed(evidence, contract)
    yield from _declared_block_disagrees(evidence, contract)
    if contract.quantized and not evidence.quantized:
        found = f"{len(evidence.groups.dense):,} dense tensors and no quantized one"
        remedy = "Take the configuration from the export that wrote the weights: a dense checkpoint declares no quantization."
        yield Violation("units-missing", evidence.checkpoint.path, f"at least one unit of {contract.handle}", found, remedy)
    judgements = evidence.judged(contract.handle)
    siblings = Siblings(evidence.checkpoint.shard_of, evidence.registry)
    for signature, names in evidence.groups.quantized.items():
        judgement = judgements.get(signature)
        if judgement is None:
            found = f"{signature[1]} {write_shape(signature[2])}"
            finding = Finding(
                "weight-dtype", "", f"no quantized tensor in {contract.handle}", found, "Read the checkpoint as the contract it is in."
            )
            judgement = (finding,)
        if not isinstance(judgement, UnitLayout):
            resembles = _resembles(evidence, signature, contract)
            for finding in judgement:
                for name in names:
                    yield _unit_violation(evidence, finding, name, resembles, siblings)
    for name, leaf in evidence.groups.orphans:
        yield _orphan(evidence, name, leaf)


def contract_violations(evidence: Evidence, contract: Contract, wanted: Contract | None, *, refused: bool) -> Iterator[Violation]:
    """A contract that was asked for and is not the one found, or one that was found and that nothing here reads."""
    if wanted is not None and refused and evidence.full and contract.handle not in evidence.full:
        declared = ", ".join(sorted(evidence.declared.handles)) or "nothing that the registry knows"
        found = f"declared: {declared}; bytes: {_looks_like(evidence)}"
        remedy = f"Inspect it without naming a contract, or accept {' or '.join(evidence.full)}."
        yield Violation("contract-mismatch", evidence.checkpoint.path, contract.handle, found, remedy, resembles=evidence.full[0])
    if not refused and contract.handle not in evidence.registry.decoded:
        found = f"{contract.handle}: {_looks_like(evidence)}"
        remedy = f"Install a plugin whose decoder reads {contract.handle}, or use an export in a contract that has a decoder."
        remedy += evidence.registry.unavailable_note
        expected = "a contract that has a decoder here"
        yield Violation("contract-without-decoder", evidence.checkpoint.path, expected, found, remedy, resembles=contract.handle)
    elif refused and wanted is None and evidence.full:
        found = _looks_like(evidence)
        remedy = "Correct what the other violations name; the bytes alone are consistent."
        if contract.handle not in evidence.full or not evidence.declared.by_source:
            yield Violation(
                "layout-undeclared",
                evidence.checkpoint.path,
                "a declaration that agrees with the bytes",
                found,
                remedy,
                resembles=evidence.full[0],
            )


def describe_signature(signature: Signature) -> str:
    """Write a unit's tensors for a message: weight, then each sidecar with what its shape looks like."""
    suffix, dtype, shape, sides = signature
    parts = [f"{suffix or 'parameter'} {dtype} {write_shape(shape)}"]
    for leaf, side_dtype, side_shape in sides:
        words = describe_grid(shape, side_shape)
        parts.append(f"{leaf} {side_dtype} {write_shape(side_shape)}" + (f" ({words})" if words else ""))
    return ", ".join(parts)


def _looks_like(evidence: Evidence) -> str:
    signature = next(iter(evidence.groups.quantized), None)
    if signature is None:
        return "no unit: nothing in the tree is quantized"
    known = " or ".join(evidence.full[:2])
    return f"units like {describe_signature(signature)}" + (f", as in {known}" if known else "")


def _family(evidence: Evidence, signature: Signature) -> tuple[str, ...] | None:
    """Return what kind of unit a signature is, coarsely: storage and the names of its scales; None if that is unclear."""
    _, dtype, _, sides = signature
    scales = tuple(sorted(side[0] for side in sides if evidence.judge.role(side[0]) in ("weight-scale", "global-scale")))
    if sum(evidence.judge.role(each) == "weight-scale" for each in scales) != 1:
        return None
    return ("F8" if dtype.startswith("F8") else dtype, *scales)


def _mixed(evidence: Evidence, contract: Contract) -> Iterator[Violation]:
    """More than one quantized layout in one tree: units of different families, or proved in different contracts."""
    if evidence.is_full(contract.handle):
        return
    families: dict[tuple[str, ...], list[Signature]] = {}
    for signature in evidence.groups.quantized:
        family = _family(evidence, signature)
        if family is not None:
            in_contracts = tuple(_contracts_of(evidence, signature))
            families.setdefault((*family, *in_contracts) if in_contracts else family, []).append(signature)
    kinds = {_head(key) for key in families}
    proved = [set(_contracts_of(evidence, signatures[0])) for signatures in families.values()]
    proved = [each for each in proved if each]
    disjoint = len(proved) > 1 and not set.intersection(*proved)
    orphan_kinds = {("orphan", leaf.suffix) for _, leaf in evidence.groups.orphans if leaf.role == "weight-scale"}
    foreign = {kind for kind in orphan_kinds if all(kind[1] not in head for head in kinds)} if kinds else set()
    if (len(kinds) < 2 or _one_contract_has(evidence, families)) and not disjoint and not foreign:
        return
    table = "; ".join(f"{prefix}: {count:,} x {what}" for (prefix, what), count in _table(evidence).items())
    remedy = "Split the tree by layout, or export all of it in one. No reader can take two layouts for one."
    yield Violation("layout-mixed", evidence.checkpoint.path, f"one layout, {contract.handle}", table, remedy)


def _one_contract_has(evidence: Evidence, families: dict[tuple[str, ...], list[Signature]]) -> bool:
    """Whether some contract has all these kinds of unit, as DeepSeek's FP8 bodies with FP4 experts do."""
    owners = [set(_contracts_of(evidence, signature)) for signatures in families.values() for signature in signatures]
    return bool(owners and set.intersection(*owners))


def _head(key: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part for part in key if "@" not in part)


def _contracts_of(evidence: Evidence, signature: Signature) -> list[str]:
    return [
        handle
        for handle in evidence.quantized_contracts
        if isinstance(evidence.judged(handle)[signature], UnitLayout) and not evidence.registry.contracts[handle].whole_tree
    ]


def _table(evidence: Evidence) -> dict[tuple[str, str], int]:
    """Count units by prefix and by what they look like: the table that shows a mixed tree."""
    table: dict[tuple[str, str], int] = {}
    for signature, names in evidence.groups.quantized.items():
        contracts = _contracts_of(evidence, signature)
        _, dtype, shape, sides = signature
        leaves = ", ".join(f"{leaf} {side_dtype} rank {len(side_shape)}" for leaf, side_dtype, side_shape in sides) or "no scale"
        what = f"{dtype} rank {len(shape)} with {leaves}" + (f" ({contracts[0]})" if contracts else "")
        for name in names:
            key = (prefix_of(name), what)
            table[key] = table.get(key, 0) + 1
    for name, leaf in evidence.groups.orphans:
        key = (prefix_of(name), f"{leaf.suffix} without a quantized weight")
        table[key] = table.get(key, 0) + 1
    return table


def _declared_block_disagrees(evidence: Evidence, contract: Contract) -> Iterator[Violation]:
    """A declared block that is not the contract's: say what it asks for and what is there, for one unit of each shape."""
    declared = declared_block(evidence.checkpoint.declarations)
    if contract.block is None or declared is None or declared == contract.block:
        return
    for signature, names in evidence.groups.quantized.items():
        _, _, shape, sides = signature
        scale = next((each for each in sides if evidence.judge.role(each[0]) == "weight-scale"), None)
        if scale is None or len(shape) < 2:
            continue
        needed = block_grid(shape, declared)
        if needed != write_shape(scale[2]):
            expected = f"grid {needed} for weight {write_shape(shape)} under the declared block {write_shape(declared)}"
            remedy = "Take configuration and weights from one export; the block is never inferred from shapes."
            yield Violation(
                "declaration-contradicts-grid",
                names[0] + scale[0],
                expected,
                write_shape(scale[2]),
                remedy,
                evidence.checkpoint.shard_of[names[0]],
            )


def _unit_violation(evidence: Evidence, finding: Finding, name: str, resembles: str, siblings: Siblings) -> Violation:
    tensors = evidence.checkpoint.tensors
    shown = _side_name(evidence, name, finding.leaf) if finding.leaf else name
    holder = shown if shown in tensors else name
    if finding.code == "scale-missing":
        unknown = siblings.unknown(name)
        if unknown:
            found = f"only {unknown} beside it"
            remedy = "If this is the scale, the layout is one that the registry does not know: a plugin can declare it."
            return Violation("scale-leaf-unknown", name, f"a scale named {shown}", found, remedy, evidence.checkpoint.shard_of[name])
        shown = name
    return Violation(finding.code, shown, finding.expected, finding.found, finding.remedy, evidence.checkpoint.shard_of[holder], resembles)


def _side_name(evidence: Evidence, primary: str, leaf_suffix: str) -> str:
    """Return the name of the sidecar with this leaf that belongs to a primary tensor."""
    leaf = next(each for each in evidence.registry.leaves if each.suffix == leaf_suffix)
    names = [primary[: len(primary) - len(beside)] + leaf_suffix for beside in leaf.beside if primary.endswith(beside)]
    return next((name for name in names if name in evidence.checkpoint.tensors), names[0] if names else primary + leaf_suffix)


def _orphan(evidence: Evidence, name: str, leaf: Leaf) -> Violation:
    tensors, shard = evidence.checkpoint.tensors, evidence.checkpoint.shard_of[name]
    stem = name[: -len(leaf.suffix)]
    entry = tensors[name]
    beside = next((stem + each for each in leaf.beside if stem + each in tensors), "")
    what = f"{entry.dtype} {write_shape(entry.shape)}"
    if beside:
        found = f"{what} beside {beside}, which is {tensors[beside].dtype} and not quantized"
    else:
        found = f"{what} and no tensor that it could belong to"
    expected = f"a quantized tensor named {' or '.join(stem + each for each in leaf.beside) or 'like it'}"
    remedy = "Restore the quantized weight, or remove the sidecar where the checkpoint is made."
    return Violation("scale-orphan", name, expected, found, remedy, shard)


def _resembles(evidence: Evidence, signature: Signature, contract: Contract) -> str:
    others = [handle for handle in _contracts_of(evidence, signature) if handle != contract.handle]
    return others[0] if others else ""
