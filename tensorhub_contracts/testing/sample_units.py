"""Small checkpoints of a contract, made from its facts alone: odd shapes, every code, scales that are all different."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from tensorhub_contracts.checkpoints.geometry import BITS
from tensorhub_contracts.registry.contract import Contract, Form, TensorFacts
from tensorhub_contracts.registry.shape_patterns import Dimension, bind, expand
from tensorhub_contracts.testing.numbers import encoded, values

#: A weight of more elements says nothing new, and Python takes its time with each.
_MOST_ELEMENTS: Final = 150_000

#: Sizes of a weight: one block exactly, tails on both sides, less than a block, one column more than a block, one row.
_SIZES: Final = ({"out": 128, "in": 128}, {"out": 130, "in": 257}, {"out": 5, "in": 3}, {"out": 64, "in": 129}, {"out": 1, "in": 300})
#: Mantissas of F32 scales for which some code's exact product, rounded once to BF16 (the first two) or to F16 (the others),
#: differs from the product that is rounded to F32 first: a decoder that fuses the two roundings is seen. Found by search.
_TELLTALE_MANTISSAS: Final = tuple(map(float.fromhex, ("0x1.fc924ap+0", "0x1.f22222p+0", "0x1.965d16p+0", "0x1.065556p+0")))

_OTHER_SIZES: Final = {"experts": 3, "height": 3, "width": 2, "depth": 2}


@attrs.frozen
class StoredTensor:
    """A tensor as it lies in the file: dtype, shape in elements, little-endian bytes, row-major."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def values(self) -> list[float]:
        """The elements as numbers."""
        return values(self.dtype, self.data)


@attrs.frozen
class SampleUnit:
    """One unit: its tensors and their names by role, the form that it has, and what the symbols of its shapes stand for."""

    form: str
    names: Mapping[str, str]
    tensors: Mapping[str, StoredTensor]
    symbols: Mapping[str, int]


def sample_units(contract: Contract) -> Iterator[SampleUnit]:
    """Yield units of every form of a contract, in every size and with every dtype that its tensors may have."""
    chance = random.Random(contract.handle)  # the same tree on every machine
    number = 0
    for form in contract.form:
        for sizes in _SIZES:
            dtypes = max(len(tensor.dtypes) for tensor in form.tensors.values())
            for choice in range(dtypes):
                unit = _unit(contract, form, {**_OTHER_SIZES, **sizes}, choice, f"model.layers.{number}.proj", chance)
                if unit is not None:
                    number += 1
                    yield unit


def unquantized_tensors(contract: Contract) -> dict[str, StoredTensor]:
    """Return tensors that nothing scales, of every dtype that the contract admits for them."""
    chance = random.Random(contract.handle + " dense")  # the same tree on every machine
    tensors = {}
    for place, dtype in enumerate(contract.unquantized.vector_dtypes):
        tensors[f"model.norms.{place}.weight"] = _unquantized(dtype, (17,), chance)
    for place, dtype in enumerate(contract.unquantized.matrix_dtypes):
        tensors[f"model.tables.{place}.weight"] = _unquantized(dtype, (5, 19), chance)
    return tensors


def write_tree(folder: Path, contract: Contract, tensors: Mapping[str, StoredTensor]) -> Path:
    """Write a checkpoint with a configuration that declares the contract; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    header: dict[str, Any] = {}
    place = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [place, place + len(tensor.data)]}
        place += len(tensor.data)
    declaring = declaring_metadata(contract, tensors)
    text = json.dumps({"__metadata__": declaring, **header} if declaring else header).encode()
    payload = b"".join(tensor.data for tensor in tensors.values())
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + payload)
    for name, content in declaring_files(contract).items():
        (folder / name).write_text(json.dumps(content), "utf-8")
    return folder


def declaring_files(contract: Contract) -> dict[str, Any]:
    """Return the content of the configuration files that declare a contract, by their names."""
    files: dict[str, Any] = {"config.json": {"architectures": ["Sample"]}}
    if not contract.declares or contract.declares[0].source == "header_metadata":
        return files
    declared = contract.declares[0]
    content: dict[str, Any] = {}
    for requirement in declared.require:
        if requirement.optional or requirement.absent or requirement.keys:
            continue
        *steps, last = requirement.key.split(".")
        inner = content
        for step in steps:
            inner = inner.setdefault("group_0" if step == "*" else step, {})
        value = requirement.any_of[0] if requirement.any_of else requirement.equals
        inner[last] = list(value) if isinstance(value, tuple) else value
    if declared.source == "quantization_config":
        files["config.json"]["quantization_config"] = content
    else:
        files[f"{declared.source}.json"] = {"quantization": content}
    return files


def declaring_metadata(contract: Contract, names: Iterable[str]) -> dict[str, str]:
    """Return the metadata of a header that declares a contract which a configuration file cannot, for tensors of these names."""
    if not contract.declares or contract.declares[0].source != "header_metadata":
        return {}
    suffix = contract.form[0].primary.suffix
    others = {tensor.suffix for form in contract.form for role, tensor in form.tensors.items() if role != "weight"}
    listed = set(names)
    modules = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    formats = [str(each.equals) for each in contract.declares[0].require if each.key == "layers.*.format"]
    layers = {module: {"format": formats[0]} for module in modules if any(module + other in listed for other in others)}
    return {"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": layers})}


def _unit(contract: Contract, form: Form, sizes: dict[str, int], choice: int, stem: str, chance: random.Random) -> SampleUnit | None:
    """Return a unit of a form, or None if a size cannot be one of the contract's or is too large for a sample."""
    sizes = {
        symbol: -(-size // contract.multiple_of.get(symbol, 1)) * contract.multiple_of.get(symbol, 1) for symbol, size in sizes.items()
    }
    pattern = form.primary.patterns[0]
    shape = tuple(_stored(dimension, sizes) for dimension in pattern)
    symbols = bind(pattern, shape)
    if symbols is None or math.prod(shape) > _MOST_ELEMENTS:
        return None
    names = form.names(stem + form.primary.suffix.replace("{number}", "0"))
    tensors = {}
    for role, tensor in form.tensors.items():
        side = expand(tensor.patterns[0], symbols, shape) if role != "weight" else shape
        tensors[role] = _tensor(role, tensor, side, choice, chance)
    return SampleUnit(form.name, names, tensors, symbols)


def _stored(dimension: Dimension, sizes: dict[str, int]) -> int:
    return dimension.number if not dimension.symbol else -(-sizes.get(dimension.symbol, 4) // dimension.divisor)


def _tensor(role: str, facts: TensorFacts, shape: tuple[int, ...], choice: int, chance: random.Random) -> StoredTensor:
    """Return codes for a weight, every one of them if there is room, and positive numbers for whatever scales it."""
    dtype = facts.dtypes[choice % len(facts.dtypes)]
    count = math.prod(shape)
    size = count * BITS[dtype] // 8
    if role == "weight" or dtype not in ("F32", "BF16", "F16"):
        codes = bytes(range(256))
        return StoredTensor(dtype, shape, bytes(chance.sample(codes, min(256, size))) + bytes(chance.choices(codes, k=max(0, size - 256))))
    return StoredTensor(dtype, shape, encoded(dtype, [_scale(place, dtype, chance) for place in range(count)]))


def _scale(place: int, dtype: str, chance: random.Random) -> float:
    """Return a scale: no power of two, and so large or small now and then that roundings or subnormal products show."""
    if dtype == "F32" and place % 3 == 0:
        return math.ldexp(_TELLTALE_MANTISSAS[place // 3 % len(_TELLTALE_MANTISSAS)], -2 - place // 12 % 7)
    smallest = {"F32": -140, "BF16": -130, "F16": -16}[dtype]
    exponent = smallest if place % 7 == 4 else chance.randint(-9, 3)
    return math.ldexp(1 + chance.random() * 0.96 + 0.01, exponent)


def _unquantized(dtype: str, shape: tuple[int, ...], chance: random.Random) -> StoredTensor:
    numbers = [chance.gauss(0, 1) for _ in range(math.prod(shape))]
    return StoredTensor(dtype, shape, encoded(dtype, numbers))
