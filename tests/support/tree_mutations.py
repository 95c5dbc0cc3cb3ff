"""Changes to a tree: one tensor taken away, added, renamed, or of another dtype or shape; two swapped; another declaration."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from typing import Any

from tests.support.checkpoint_files import BITS
from tests.support.page_integers import Geometry, leaf_of, module_of
from tests.support.page_oracle import NARROW, WIDE, Tree

_DTYPES = tuple(dtype for dtype, bits in BITS.items() if bits >= 8)
_INTEGERS = ("U8", "I8", "I16", "U16", "I32", "U32", "I64", "U64", "BOOL", "C64")

#: Last segments of names: those of known scales, odd ones, and ordinary ones.
_LEAVES = (
    "weight_scale", "weight_scale_inv", "scale", "scales", "weight_scale_2", "input_scale", "scale_weight", "qscale_weight", "k_scale",
    "activation_scale", "pre_quant_scale", "comfy_quant", "weight_zero_point", "s", "amax", "dequant_factor", "weight_s", "absmax", "gamma",
    "zeros", "smooth", "g_idx", "idx", "lora_up", "mask", "codes", "weight_packed", "table", "bias", "norm", "zp", "inv",
)  # fmt: skip
_ENDINGS = (
    "_scale",
    "_scale_inv",
    "_scales",
    "_s",
    "_zp",
    "_weight_scale",
    "_input_scale",
    "_amax",
    "_blocks",
    ":scale",
    "_smooth",
    "_bias",
)
_PLACES = ("lm_head", "model.layers.0.mlp.router", "model.layers.7.norm", "")


def mutate(tree: Tree, chance: random.Random) -> tuple[Tree, str]:
    """Return a changed copy of a tree, and what was changed."""
    while True:
        changed = copy.deepcopy(tree)
        change = chance.choice(_CHANGES)
        what = change(changed, chance)
        if what and repr(changed) != repr(tree):  # 8 and 8.0 are equal
            return changed, what


def _remove(tree: Tree, chance: random.Random) -> str:
    if len(tree.tensors) < 2:
        return ""
    name = chance.choice(list(tree.tensors))
    del tree.tensors[name]
    return f"without {name}"


def _add(tree: Tree, chance: random.Random) -> str:
    """Add a tensor beside one that is there, below it, under its name with an ending, or elsewhere."""
    beside = chance.choice(list(tree.tensors))
    shape = tree.tensors[beside][1]
    name = chance.choice(
        [f"{module_of(beside)}.{chance.choice(_LEAVES)}"] * 3
        + [beside + chance.choice(_ENDINGS)] * 3
        + [beside.removesuffix("_blocks").removesuffix("_weight_qdata") + chance.choice(_ENDINGS), f"{beside}.{chance.choice(_LEAVES)}"]
        + [f"{chance.choice(_PLACES)}.{chance.choice(_LEAVES)}"]
    ).lstrip(".")
    if name in tree.tensors:
        return ""
    dtype = chance.choice(
        [chance.choice(WIDE), chance.choice(WIDE), chance.choice(_INTEGERS), chance.choice(_INTEGERS), chance.choice(NARROW[3:])]
    )
    tree.tensors[name] = (dtype, _some_shape(shape, chance))
    return f"with {name} {tree.tensors[name]}"


def _some_shape(near: tuple[int, ...], chance: random.Random) -> tuple[int, ...]:
    """Return a shape that could belong to a weight: one number, one for each row, column, block or element, or another."""
    rows, columns = (*near, 1, 1)[0], (*near, 1)[-1]
    blocks = tuple(-(-each // 128) for each in near)
    groups = (*near[:-1], -(-columns // chance.choice((16, 32)))) if near else ()
    square = (1, 1, rows, rows)
    odd = ((7,), (3, 5), (512, 300), (2, 2, 2), (0,), (0, 4))
    return chance.choice(((), (1,), (1, 1), (rows,), (columns,), (rows, 1), (1, columns), blocks, groups, near, square, chance.choice(odd)))


def _rename(tree: Tree, chance: random.Random) -> str:
    name = chance.choice(list(tree.tensors))
    segments = name.split(".")
    dropped = chance.randrange(len(segments))
    new = chance.choice(
        [
            name + chance.choice(_ENDINGS),
            chance.choice(("model.", "x_", "ema.")) + name,
            ".".join(segments[:dropped] + segments[dropped + 1 :]),
            ".".join([*segments[:-1], chance.choice(_LEAVES)]),
            name.replace("weight", "kernel"),
            name.replace("scale", "s"),
            ".".join([*segments[:-1], segments[-1].upper()]),
            name[:-1],
        ]
    )
    if not new or new in tree.tensors:
        return ""
    tree.tensors = {new if each == name else each: geometry for each, geometry in tree.tensors.items()}
    return f"{name} renamed {new}"


def _dtype(tree: Tree, chance: random.Random) -> str:
    name = chance.choice(list(tree.tensors))
    tree.tensors[name] = (chance.choice(_DTYPES), tree.tensors[name][1])
    return f"{name} is {tree.tensors[name][0]}"


def _shape(tree: Tree, chance: random.Random) -> str:
    name = chance.choice(list(tree.tensors))
    dtype, shape = tree.tensors[name]
    place = chance.randrange(len(shape)) if shape else 0
    new = chance.choice(
        [
            (1, *shape),
            (*shape, 1),
            shape[1:],
            shape[:-1],
            shape[::-1],
            (*shape[:place], (*shape, 1)[place] + 1, *shape[place + 1 :]),
            (*shape[:place], max(0, (*shape, 1)[place] - 1), *shape[place + 1 :]),
            (*shape[:place], 0, *shape[place + 1 :]),
            (math.prod(shape),),
            _some_shape(shape, chance),
        ]
    )
    tree.tensors[name] = (dtype, new)
    return f"{name} is {list(new)}"


def _swap(tree: Tree, chance: random.Random) -> str:
    if len(tree.tensors) < 2:
        return ""
    first, second = chance.sample(list(tree.tensors), 2)
    (one, shape), (other, other_shape) = tree.tensors[first], tree.tensors[second]
    tree.tensors[first], tree.tensors[second] = (other, shape), (one, other_shape)
    return f"dtypes of {first} and {second} swapped"


def _declaration(tree: Tree, chance: random.Random) -> str:
    """Take away, empty or change what is declared, or declare something."""
    holders = [(each, key) for each, key in _holders(tree)]
    if not holders:
        content = chance.choice(
            [{"quant_method": "fp8", "weight_block_size": [128, 128]}, {"quant_method": "modelopt", "quant_algo": "FP8"}]
        )
        if chance.random() < 0.3:
            tree.files["hf_quant_config.json"] = {"quantization": content}
        else:
            tree.files["config.json"]["quantization_config"] = content
        return f"declares {content}"
    holder, key = chance.choice(holders)
    if chance.random() < 0.3:
        del holder[key]
        return "nothing is declared"
    leaves = list(_leaves(holder[key]))
    if not leaves:
        return ""
    numbers = [(each, key) for each, key in leaves if not isinstance(each[key], str)]  # few, and the ones that are mistaken for others
    inner, last = chance.choice(leaves + 3 * numbers)
    values = [
        None,
        8,
        4,
        "8",
        "fp8",
        [128, 128],
        [64, 64],
        True,
        "modelopt",
        "FP8",
        "NVFP4",
        "tensor",
        "channel",
        "static",
        "dynamic",
        [],
        1.0,
    ]
    if chance.random() < 0.4:
        del inner[last]
        return f"{last} is not declared"
    inner[last] = chance.choice(_like(inner[last]) if chance.random() < 0.5 else values)
    return f"{last} is declared {inner[last]!r}"


def _like(value: Any) -> list[Any]:
    """Return what a value is taken for by whoever compares without types."""
    if type(value) is int:
        return [float(value), float(value), str(value), value + 1]
    if type(value) is str:
        return [value.upper(), value.lower(), [value], f"{value} "]
    return [[float(each) for each in value]] if type(value) is list else [value]


def _holders(tree: Tree) -> list[tuple[dict[str, Any], str]]:
    config = tree.files["config.json"]
    places = [(config, "quantization_config"), (config.get("text_config", {}), "quantization_config")]
    places += [(tree.files.get(f"{name}.json", {}), "quantization") for name in ("hf_quant_config", "params")]
    places += [(tree.metadata, "_quantization_metadata")]
    return [(holder, key) for holder, key in places if key in holder]


def _leaves(content: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    found = []
    for key, value in content.items():
        found += _leaves(value) if isinstance(value, dict) and value else [(content, key)]
    return found


_CHANGES: tuple[Callable[[Tree, random.Random], str], ...] = (
    _remove, _add, _add, _add, _rename, _rename, _dtype, _dtype, _shape, _shape, _swap, _declaration,
)  # fmt: skip  # a list: what is drawn more often stands more often


def geometry_text(geometry: Geometry) -> str:
    """Write a tensor for a failure's message."""
    return f"{geometry[0]} {list(geometry[1])}"


__all__ = ["geometry_text", "leaf_of", "mutate"]
