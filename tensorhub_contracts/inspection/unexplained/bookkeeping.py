"""Integers, booleans and complex numbers that are no weights: told by a rule, so that whatever it does not explain is refused.

docs/checkpoints.md states the rule. That nothing is known of a tensor proves nothing: packed weights are integers too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from tensorhub_contracts.checkpoints.geometry import BITS, Geometry
from tensorhub_contracts.inspection.unexplained.beside import Beside
from tensorhub_contracts.inspection.units.tensor_groups import UnitGeometry
from tensorhub_contracts.registry.contract import BookkeepingWords

#: Tables of 64-bit integers under a name that says nothing hold no more than this, or than a sixteenth of the checkpoint.
_SMALL: Final = 1 << 20
_SHARE: Final = 16

_WIDE: Final = frozenset({"I64", "U64"})
_MIDDLE: Final = frozenset({"I32", "U32", "I16", "U16"})

#: What the last segment of a name holds if the tensor may scale integers beside it.
_SCALES = "scal|absmax|amax|zero|scb|codebook|quant|lut|centroid|biases"
_WORDS = "[a-z]+"


def unexplained(
    integers: Mapping[str, Geometry],
    units: Mapping[str, UnitGeometry],
    floats: Mapping[str, Geometry],
    total: int,
    words: BookkeepingWords,
) -> list[str]:
    """Return the names of the tensors that the rule does not explain, in the order given.

    `integers` are the tensors to judge, `units` the weights of the checkpoint's units, `floats` its floating tensors that
    belong to none, `total` the bytes of all of its tensors.
    """
    if not integers:
        return []
    scales = _Scales(integers, units, floats)
    beside = Beside(units)
    tables = sum(each.byte_length or 0 for name, each in integers.items() if _is_nameless_table(name, each, words))
    tables_fit = tables <= max(_SMALL, total // _SHARE)
    faulty = {
        name: None
        for name, geometry in integers.items()
        if not _explained(name, geometry, words, scales, beside_unit=name in beside)
        or (not tables_fit and _is_nameless_table(name, geometry, words))
    }
    faulty |= dict.fromkeys(_neighbours(integers, faulty))
    return [name for name in integers if name in faulty]


class _Scales:
    """The tensors that may scale integers: by what the last segment of their names says, in the module of one or below it.

    One of a single element scales what shares its words: `scale` anything, and `logit_scale` nothing called `levels`.
    """

    def __init__(self, integers: Iterable[str], units: Iterable[str], floats: Mapping[str, Geometry]) -> None:
        places = {place for name in integers for place in (name, _module(name))}
        self._single: dict[str, list[set[str]]] = {}
        self._several: set[str] = set()
        for name in (*floats, *units):
            module = _module(name)
            if module in places and re.search(_SCALES, _leaf(name).lower()):
                if name in floats and math.prod(floats[name].shape) == 1:
                    words = {word for word in re.findall(_WORDS, _leaf(name).lower()) if not re.search(_SCALES, word)}
                    self._single.setdefault(module, []).append(words)
                else:
                    self._several.add(module)

    def are_beside(self, name: str) -> bool:
        """Whether one of them may scale this tensor."""
        if not self._several.isdisjoint((name, _module(name))):
            return True
        said = set(re.findall(_WORDS, _leaf(name).lower()))
        return any(words <= said for place in (name, _module(name)) for words in self._single.get(place, ()))


def _explained(name: str, geometry: Geometry, words: BookkeepingWords, scales: _Scales, *, beside_unit: bool) -> bool:
    """Whether the rule explains a tensor, by its dtype, its rank, its name and what lies beside it."""
    dtype, shape = geometry.dtype, geometry.shape
    said = set(re.findall(_WORDS, _leaf(name).lower()))
    table = not said.isdisjoint(words.tables)
    if "weight" in _leaf(name).lower():
        return False
    if math.prod(shape) <= 1:
        return dtype in _WIDE or not beside_unit  # a counter; of fewer bits beside a weight, it could be its exponent
    if beside_unit:  # whatever it is: a boolean could say which elements of the weight count
        return False
    if dtype == "BOOL":
        return True
    if dtype == "C64":
        return len(shape) == 1 or not said.isdisjoint(words.rotations)
    if scales.are_beside(name) and not (table and dtype in _WIDE):
        return False
    if dtype in _WIDE:
        return True
    if dtype in _MIDDLE:
        return table or not said.isdisjoint(words.masks) or math.prod(shape) == max(shape)
    return _explained_bytes(name, shape, said, words)


def _explained_bytes(name: str, shape: tuple[int, ...], said: set[str], words: BookkeepingWords) -> bool:
    """Whether integers of 8 bits are a mask, or bytes of an embedded tokenizer or the like: a vector outside of numbered layers."""
    if not said.isdisjoint(words.masks):
        return True
    if len(shape) == 1:
        return not said.isdisjoint(words.tokenizers) or not any(segment.isdigit() for segment in name.split("."))
    return len(shape) > 2 and shape[-1] == shape[-2] and math.prod(shape[:-2]) == 1


def _is_nameless_table(name: str, geometry: Geometry, words: BookkeepingWords) -> bool:
    """Whether it is a table of 64-bit integers of which only the size can say that it is none of packed weights."""
    return (
        geometry.dtype in _WIDE
        and len(geometry.shape) > 1
        and {*words.tables, *words.masks}.isdisjoint(re.findall(_WORDS, _leaf(name).lower()))
    )


def _neighbours(integers: Iterable[str], faulty: Collection[str]) -> Iterator[str]:
    """Yield the integers that belong to refused ones: those of the same module, and those below one."""
    modules = {_module(name) for name in faulty}
    for name in integers:
        module = _module(name)
        if (module and module in modules) or module in faulty:
            yield name


def describe(geometry: Geometry) -> str:
    """Return what a tensor that nothing explains holds, for a message."""
    if geometry.dtype in ("C64", "BOOL"):
        return "complex numbers" if geometry.dtype == "C64" else "truth values under the name of a weight"
    return f"integers of {BITS[geometry.dtype]} bits, which may be packed weights"


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]
