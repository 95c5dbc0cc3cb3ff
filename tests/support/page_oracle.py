"""Says whether a tree is in the contract of a page of docs/contracts/, by the rules of docs/checkpoints.md.

Written from the pages alone: it imports nothing of the product and shares no code with it. Closed world: a tensor is explained by a
rule of the pages, or the tree is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.contract_pages import Declared, Form, Page, Requirement, Row, Shape
from tests.support.page_integers import Geometry, is_bookkeeping, leaf_of, module_of, words_of

WIDE = ("BF16", "F16", "F32", "F64")
NARROW = ("F4", "F6_E2M3", "F6_E3M2", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ")

#: Beside a weight, and no scale.
_COMPANIONS = ("bias", "running_mean", "running_var")
_SCALING = re.compile(r"scal|absmax|amax|dequant|factor|zero|scb")
#: Names of scales that are those of ordinary parameters too, where nothing quantized lies beside them.
_ORDINARY = (".scale", "_scales", "_input_scale")
_CACHE = re.compile(r"(?:.+\.)?[kv]_scale|.*\b[qkv]_fake_quantizer\.qscale_act")
_HEADS = 1024


@dataclass
class Tree:
    """What a checkpoint holds: its tensors, its JSON files by name, and the metadata of its header."""

    tensors: dict[str, Geometry]
    files: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class Verdict:
    """What each tensor is, and every reason why the tree is not in the contract."""

    kinds: dict[str, str]
    reasons: list[str]

    @property
    def accepted(self) -> bool:
        return not self.reasons


@dataclass(frozen=True)
class _Unit:
    form: Form
    stem: str
    weight: str
    sidecars: tuple[str, ...]


def judge_tree(tree: Tree, page: Page, pages: Mapping[str, Page]) -> Verdict:
    """Judge a tree against one page; `pages` are all, whose names for scales count in every contract."""
    verdict = judge_tensors(tree.tensors, page, pages)
    declared = list(_declarations(tree))
    if not page.declared:
        verdict.reasons += [f"{place} declares something" for place, _ in declared]
    elif declared:
        modules = {unit.stem for unit in _units(tree.tensors, page)}
        verdict.reasons += [
            f"{place} declares something else" for place, content in declared if not _declares(page, place, content, modules)
        ]
        contents = [content for place, content in declared if place == "quantization_config"]
        verdict.reasons += ["two declarations"] * any(content != contents[0] for content in contents)
    if not declared and page.undeclared == "never":
        verdict.reasons.append("nothing is declared")
    if not declared and page.undeclared == "if-unique":
        others = (each for each in pages.values() if each.forms and each is not page)
        verdict.reasons += [f"in {each.handle} too" for each in others if judge_tensors(tree.tensors, each, pages).accepted]
    return verdict


def judge_tensors(tensors: Mapping[str, Geometry], page: Page, pages: Mapping[str, Page]) -> Verdict:
    """Judge the tensors alone."""
    units = list(_units(tensors, page))
    kinds = dict.fromkeys((unit.weight for unit in units), "weight")
    verdict = Verdict(kinds, [])
    used: dict[str, Form] = {}
    for unit in units:
        for name in unit.sidecars:
            if name in used and not (used[name] is unit.form and unit.form.weight.numbered):
                verdict.reasons.append(f"{name} scales two weights")
            used[name] = unit.form
            kinds[name] = "sidecar"
    verdict.reasons += _whole(units, page)
    markers = {segment for each in pages.values() for segment, _, _ in each.markers}
    floats = [name for name, (dtype, _) in tensors.items() if name not in kinds and dtype in WIDE and leaf_of(name) not in markers]
    floats = [name for name in floats if not _CACHE.fullmatch(name)]
    for name in tensors:
        if name not in kinds:
            kinds[name], reason = _loose(name, tensors, page, pages, units, floats)
            verdict.reasons += [f"{name}: {reason}"] * bool(reason)
    if page.no_scale:
        looked = [name for name in kinds if kinds[name] == "weight"]
        verdict.reasons += [f"{name} may scale a weight beside it" for name in looked if _may_scale(name, tensors, units)]
    verdict.reasons += _unquantized(tensors, [name for name, kind in kinds.items() if kind == "unquantized"], page)
    return verdict


def _whole(units: list[_Unit], page: Page) -> Iterator[str]:
    if page.forms and not units:
        yield "no unit"
    for form in page.forms:
        if form.required and not any(unit.form is form for unit in units):
            yield f"no unit of the form {form.name}"
        numbers: dict[str, set[int]] = {}
        for unit in units:
            if unit.form is form and form.weight.numbered:
                found = form.weight.pattern.fullmatch(unit.weight)
                assert found
                numbers.setdefault(unit.stem, set()).add(int(found["number"]))
        for stem, present in numbers.items():
            if present != set(range(len(present))):
                yield f"{stem}: a number is missing"


def _units(tensors: Mapping[str, Geometry], page: Page) -> Iterator[_Unit]:
    """Yield every weight that is, with all that scales it, as one of the page's forms says."""
    for name, (dtype, shape) in tensors.items():
        for form in page.forms:
            found = form.weight.pattern.fullmatch(name)
            symbols = _bound(form.weight.shapes, shape) if found and dtype in form.weight.dtypes else None
            if found is None or symbols is None:
                continue
            if any(symbols.get(symbol, 0) % factor for symbol, factor in page.multiples.items()):
                continue
            rows = {row.named(found["stem"]): row for row in form.rows[1:]}
            if all(_sidecar_is_right(tensors.get(each), row, symbols) for each, row in rows.items()):
                yield _Unit(form, found["stem"], name, tuple(each for each in rows if each in tensors))
                break


def _sidecar_is_right(geometry: Geometry | None, row: Row, symbols: dict[str, int]) -> bool:
    if geometry is None:
        return row.optional
    return geometry[0] in row.dtypes and any(_has_shape(geometry[1], shape, symbols) for shape in row.shapes)


def _bound(shapes: Iterable[Shape], found: tuple[int, ...]) -> dict[str, int] | None:
    """Return what the symbols of a weight's shape stand for, or None if it has no such shape: `in/2` is two elements a byte."""
    for shape in shapes:
        if len(shape) != len(found) or min(found, default=1) < 1:
            continue
        symbols: dict[str, int] = {}
        for size, number in zip(shape, found, strict=True):
            symbol, _, divisor = size.partition("/")
            if (number != int(size)) if size.isdigit() else (symbols.setdefault(symbol, number * int(divisor or 1)) < 1):
                break
        else:
            return symbols
    return None


def _has_shape(found: tuple[int, ...], shape: Shape, symbols: dict[str, int]) -> bool:
    if len(found) != len(shape):
        return False
    return all(number >= 1 and _size(size, symbols) in (None, number) for number, size in zip(found, shape, strict=True))


def _size(text: str, symbols: dict[str, int]) -> int | None:
    """Return the size that a page writes, such as `out^128*in/16^4`, or None if it is any size."""
    product = 1
    for factor in text.split("*"):
        if factor.isdigit():
            product *= int(factor)
            continue
        symbol, divisor, multiple = re.fullmatch(r"([a-z_]+)(?:/(\d+))?(?:\^(\d+))?", factor).groups()  # type: ignore[union-attr]
        if symbol not in symbols:
            return None
        blocks = math.ceil(symbols[symbol] / int(divisor or 1))
        product *= math.ceil(blocks / int(multiple or 1)) * int(multiple or 1)
    return product


def _loose(
    name: str, tensors: Mapping[str, Geometry], page: Page, pages: Mapping[str, Page], units: list[_Unit], floats: list[str]
) -> tuple[str, str]:
    """Return what a tensor outside of units is, and why it is refused, if it is."""
    dtype, shape = tensors[name]
    for segment, dtypes, shapes in (marker for each in pages.values() for marker in each.markers):
        if leaf_of(name) == segment:
            own = (segment, dtypes, shapes) in page.markers and dtype in dtypes and shape in shapes
            return "bookkeeping", "" if own else "a marker of another contract"
    if _CACHE.fullmatch(name):
        fits = dtype in WIDE[:3] and (shape == () or (len(shape) == 1 and 1 <= shape[0] <= _HEADS))
        return "cache-scale", "" if fits else "no scale of a cache"
    if dtype in NARROW:
        return "refused", "in no unit"
    if _is_called_scale(name, pages):
        return "refused", "a scale without a weight"
    if dtype in WIDE:
        return "unquantized", "may scale a weight beside it" if _may_scale(name, tensors, units) else ""
    explained = is_bookkeeping(name, tensors, floats, lambda each: any(_is_beside(each, unit) for unit in units))
    return "bookkeeping", "" if explained else "integers that nothing explains"


def _is_called_scale(name: str, pages: Mapping[str, Page]) -> bool:
    """Whether the name is that of a scale on some page, and of nothing else."""
    rows = {row.name for page in pages.values() for form in page.forms for row in form.rows[1:]}
    suffixes = {re.sub(r"\{\w+\}", "", each) for each in rows} - set(_ORDINARY)
    return any("." + leaf_of(name) == each if each.startswith(".") else name.endswith(each) for each in suffixes)


def _may_scale(name: str, tensors: Mapping[str, Geometry], units: list[_Unit]) -> bool:
    """Whether a float lies beside a weight and is no larger: it could be its scale. A weight beside a parameter must be smaller."""
    if leaf_of(name).endswith(_COMPANIONS):
        return False
    size, weights = math.prod(tensors[name][1]), {unit.weight for unit in units}
    for unit in units:
        larger = math.prod(tensors[unit.weight][1]) - (name in weights and not _is_named_weight(unit))
        if unit.weight != name and size <= larger and _is_beside(name, unit):
            return True
    return False


def _is_named_weight(unit: _Unit) -> bool:
    return unit.form.weight.name.startswith("{module}.") or leaf_of(unit.weight) == "weight"


def _is_beside(name: str, unit: _Unit) -> bool:
    """In the module of `x.weight`, or below it. Beside a parameter `w`: below it, `w_…`, `w:…`, and what is called a scale of its words."""
    if module_of(name) == unit.weight:
        return True
    if module_of(name) not in (module_of(unit.weight), unit.stem if _is_named_weight(unit) else module_of(unit.weight)):
        return False
    if _is_named_weight(unit):
        return True
    own, said = leaf_of(unit.stem), leaf_of(name)
    if said.startswith((own + "_", own + ":")):
        return True
    others = {word for word in words_of(said) if not _SCALING.search(word)}
    return bool(_SCALING.search(said.lower())) and others <= words_of(own)


def _unquantized(tensors: Mapping[str, Geometry], names: list[str], page: Page) -> Iterator[str]:
    matrices = [name for name in names if len(tensors[name][1]) > 1]
    alike = page.vectors_as_matrices and not matrices
    for name in names:
        dtype = tensors[name][0]
        if dtype not in (page.matrices if alike or name in matrices else page.vectors):
            yield f"{name}: unquantized {dtype}"
    if page.two_dtypes and len({tensors[name][0] for name in (matrices or names)}) < 2:
        yield "one dtype alone"
    if not page.forms and not names:
        yield "nothing but integers"


def _declarations(tree: Tree) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each place that declares something, with what stands there."""
    pending = [tree.files.get("config.json", {})]
    while pending:
        for key, value in pending.pop().items():
            if key == "quantization_config" and value is not None:
                yield key, value
            elif key in ("quantization", "compression_config") and value:
                yield "other", value
            elif isinstance(value, dict):
                pending.append(value)
    for name in ("hf_quant_config", "params"):
        if tree.files.get(name + ".json", {}).get("quantization") is not None:
            yield name, tree.files[name + ".json"]["quantization"]
    if tree.files.get("quantize_config.json"):
        yield "other", tree.files["quantize_config.json"]
    if "_quantization_metadata" in tree.metadata:
        yield "header_metadata", tree.metadata["_quantization_metadata"]


def _declares(page: Page, place: str, content: Any, modules: set[str]) -> bool:
    return any(each.place == place and _meets(each, content, modules) for each in page.declared)


def _meets(declared: Declared, content: Any, modules: set[str]) -> bool:
    if declared.modules and set(content.get(declared.modules, ())) != modules:
        return False
    return all(_is_met(each, value) for each in declared.require for value in _values(content, each.key.split(".")))


_ABSENT = object()


def _values(content: Any, steps: list[str]) -> Iterator[Any]:
    if not steps:
        yield content
    elif not isinstance(content, dict) or (steps[0] not in content and steps[0] != "*") or not content:
        yield _ABSENT
    elif steps[0] == "*":
        for member in content.values():
            yield from _values(member, steps[1:])
    else:
        yield from _values(content[steps[0]], steps[1:])


def _is_met(requirement: Requirement, value: Any) -> bool:
    if value is _ABSENT:
        return requirement.null or requirement.optional or requirement.absent
    if value is None:
        return requirement.null or requirement.optional
    if requirement.keys:
        return isinstance(value, dict) and set(value) <= set(requirement.keys)
    return json.dumps(value) in map(json.dumps, requirement.values)  # 8 is neither "8" nor 8.0
