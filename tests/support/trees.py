"""What every layout test needs: small trees, the configurations that declare them, and an exact check of a refusal."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorhub_contracts import Inspection, inspect
from tests.support.checkpoint_files import Tensors, write_checkpoint
from tests.support.refusals import well_formed

BLOCKWISE = "hf.fp8-blockwise@1"
ROWWISE = "cozy.fp8-rowwise@1"

#: The object of a violation that concerns the whole tree: its path.
TREE = "<tree>"

_NUMBERS = itertools.count()

#: Same as `Tensors`, and may be changed.
Tree = dict[str, tuple[str, tuple[int, ...]]]


def fp8_declaration(**changes: Any) -> dict[str, Any]:
    """Return the `quantization_config` of an official Qwen block-FP8 release, with keys changed, or removed where `...` is given."""
    declared = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128], **changes}
    return {key: value for key, value in declared.items() if value is not ...}


def fp8_config(**changes: Any) -> dict[str, Any]:
    """Return a `config.json` with that declaration at the top level."""
    return {"quantization_config": fp8_declaration(**changes)}


def compressed_tensors_config(strategy: str, group: str = "group_0", **weights: Any) -> dict[str, Any]:
    """Return a `config.json` as compressed-tensors writes it, with one group of weights."""
    facts = {"num_bits": 8, "type": "float", "strategy": strategy, **weights}
    return {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {group: {"weights": facts}}}}


def comfy_metadata(layout: str, *modules: str, **keys: Any) -> dict[str, str]:
    """Return the metadata of a header in which ComfyUI names each quantized module; `keys` stand beside the modules."""
    layers = {module: {"format": layout} for module in modules}
    return {"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": layers, **keys})}


def ceil_div(size: int, block: int) -> int:
    """Round up: written here once more, so that a fault in the product's own arithmetic cannot hide."""
    return -(-size // block)


def blocks(shape: tuple[int, ...], rows: int = 128, columns: int = 128) -> tuple[int, ...]:
    """Return the scale grid of a weight, for a stacked weight one grid for each expert."""
    return (*shape[:-2], ceil_div(shape[-2], rows), ceil_div(shape[-1], columns))


def unit(module: str, *shape: int, scale: str = "F32") -> Tree:
    """Return a valid blockwise unit: the weight and its grid."""
    return {f"{module}.weight": ("F8_E4M3", shape), f"{module}.weight_scale_inv": (scale, blocks(shape))}


def stacked_unit(parameter: str, *shape: int, scale: str = "F32") -> Tree:
    """Return a valid stacked unit: a bare parameter `[experts, out, in]` and a grid for each expert."""
    return {parameter: ("F8_E4M3", shape), f"{parameter}_scale_inv": (scale, blocks(shape))}


def bf16(name: str, *shape: int) -> Tree:
    """Return one unquantized tensor."""
    return {name: ("BF16", shape)}


def judge(
    folder: Path,
    tensors: Tensors,
    config: Mapping[str, Any] | None = None,
    *,
    contract: str | None = None,
    files: Mapping[str, Any] | None = None,
    **writing: Any,
) -> Inspection:
    """Write a tree of sparse shards under `folder` and inspect it; `files` are further JSON files, by name."""
    tree = folder / f"tree-{next(_NUMBERS)}"  # a test may judge several trees
    write_checkpoint(tree, tensors, config=config, **writing)
    for name, content in (files or {}).items():
        (tree / name).write_text(json.dumps(content), encoding="utf-8")
    return inspect(tree, contract=contract)


def why(inspection: Inspection) -> str:
    """Return all violations, for the text of a failure."""
    return "\n".join(map(str, inspection.violations)) or f"accepted as {inspection.contract}"


def assert_accepted(inspection: Inspection, contract: str, units: Mapping[str, tuple[int, ...]] | int | None = None) -> None:
    """Assert that exactly this contract was proved; `units` maps each weight to its grid, or counts the units."""
    assert inspection.contract == contract, why(inspection)
    assert not inspection.violations
    assert inspection.digest is not None
    assert inspection.digest.startswith("sha256:")
    assert inspection.proved
    assert inspection.not_provable
    if isinstance(units, int):
        assert len(inspection.layouts) == units
    elif units is not None:
        assert {each.name: each.layout.grid for each in inspection.units} == dict(units)


@dataclass(frozen=True)
class Fault:
    """One violation that must be there: its code and object, and what the other fields must say (each a part of the text)."""

    code: str
    object: str = TREE
    expected: str | tuple[str, ...] = ()
    found: str | tuple[str, ...] = ()
    resembles: str | None = None
    shard: str | None = None


def assert_refused(inspection: Inspection, *faults: Fault) -> None:
    """Assert that the inspection is refused for exactly these reasons, no more and no fewer."""
    assert inspection.contract is None, f"accepted as {inspection.contract}"
    assert inspection.digest is None
    assert not inspection.proved
    violations = well_formed(inspection.violations)
    found = sorted((each.code, _object(each.object, inspection)) for each in violations)
    assert found == sorted((each.code, each.object) for each in faults), why(inspection)
    by_key = {(each.code, _object(each.object, inspection)): each for each in violations}
    for fault in faults:
        violation = by_key[fault.code, fault.object]
        for text in _texts(fault.expected):
            assert text in violation.expected, f"{text!r} is not in expected: {violation}"
        for text in _texts(fault.found):
            assert text in violation.found, f"{text!r} is not in found: {violation}"
        if fault.resembles is not None:
            assert violation.resembles == fault.resembles, str(violation)
        if fault.shard is not None:
            assert violation.shard == fault.shard, str(violation)
    assert inspection.codes == tuple(dict.fromkeys(each.code for each in violations))


def assert_named_without_decoder(inspection: Inspection, contract: str) -> None:
    """Assert that a layout was proved for which no decoder ships, and that a note says so."""
    assert_accepted(inspection, contract)
    assert inspection.nearest == contract
    assert contract in inspection.resembles
    assert noted(inspection, "no decoder installed here", contract)


def noted(inspection: Inspection, *parts: str) -> bool:
    """Whether some note holds all the parts."""
    return any(all(part in note for part in parts) for note in inspection.notes)


def _texts(texts: str | tuple[str, ...]) -> Iterable[str]:
    return (texts,) if isinstance(texts, str) else texts


def _object(name: str, inspection: Inspection) -> str:
    return TREE if name == inspection.path else name
