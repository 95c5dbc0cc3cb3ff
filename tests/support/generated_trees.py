"""Small trees of the contract of a page, from the page alone: units in every form, what nothing scales, bookkeeping, a declaration."""

from __future__ import annotations

import random
from typing import Any

from tests.support.contract_pages import Declared, Form, Page, Row
from tests.support.page_integers import Geometry
from tests.support.page_oracle import Tree, _bound, _size

#: One row, one column, below, at and above a block or a group.
_SIZES = (1, 2, 3, 5, 16, 17, 31, 32, 33, 48, 127, 128, 129, 160, 256, 257)
_COUNTS = (1, 1, 2, 3)

_MODULES = ("model.layers.{}.mlp.gate_proj", "model.layers.{}.self_attn.q_proj", "blocks.{}.attn.to_k", "mtp.{}.proj", "layer{}.w")
_PARAMETERS = ("model.layers.{}.mlp.experts.gate_up_proj", "blocks.{}.experts.w1", "experts{}.down_proj", "model.layers.{}.table.values")

_BOOKKEEPING: tuple[tuple[str, Geometry], ...] = (
    ("model.position_ids", ("I64", (1, 77))),
    ("bn.num_batches_tracked", ("I64", ())),
    ("attn.causal_mask", ("BOOL", (1, 1, 8, 8))),
    ("encoder.relative_position_index", ("I32", (9, 9))),
    ("rope.freqs_cis", ("C64", (16, 4))),
    ("tekken_model", ("U8", (300,))),
    ("seen.tokens", ("I32", (5,))),
    ("model.layers.0.self_attn.causal.mask", ("U8", (1, 1, 6, 6))),
    ("steps", ("I32", (1,))),
)


def generate(page: Page, chance: random.Random) -> Tree:
    """Return a tree in the contract of a page, with what declares it."""
    tensors: dict[str, Geometry] = {}
    forms = [form for form in page.forms if form.required]
    forms += chance.choices(page.forms, k=chance.randint(0 if forms else 1, 3)) if page.forms else []
    for number, form in enumerate(forms):
        tensors |= _units(page, form, number, chance)
    tensors |= _unquantized(page, chance, list(tensors))
    for name, geometry in chance.sample(_BOOKKEEPING, chance.randint(0, 3)):
        tensors[name] = geometry
    if chance.random() < 0.2:
        for leaf in ("k_scale", "v_scale"):
            tensors[f"model.layers.0.self_attn.{leaf}"] = chance.choice([("F32", ()), ("BF16", (1,)), ("F32", (8,))])
    for name, dtypes, shapes in page.markers:
        if chance.random() < 0.5:
            tensors[name] = (chance.choice(dtypes), chance.choice(shapes))
    names = list(tensors)
    chance.shuffle(names)
    tree = Tree({name: tensors[name] for name in names}, {"config.json": {"architectures": ["Generated"]}})
    if page.declared and (page.undeclared != "allowed" or chance.random() < 0.6):
        declare(tree, chance.choice(page.declared), page, chance)
    return tree


def _units(page: Page, form: Form, number: int, chance: random.Random) -> dict[str, Geometry]:
    """Return one unit, or several where they are numbered and share what scales them."""
    stem = chance.choice(_MODULES if "{module}" in form.weight.name else _PARAMETERS).format(number)
    if "{param}" in form.weight.name and form.weight.name == "{param}" and len(form.weight.shapes[0]) != 3:
        stem = chance.choice(_MODULES).format(number) + ".weight"
    shape = tuple(_stored(size, page, chance) for size in chance.choice(form.weight.shapes))
    symbols = _bound(form.weight.shapes, shape)
    assert symbols is not None
    count = chance.randint(1, 3) if form.weight.numbered else 1
    tensors = {form.weight.named(stem, each): (chance.choice(form.weight.dtypes), shape) for each in range(count)}
    for row in form.rows[1:]:
        if not row.optional or chance.random() < 0.4:
            tensors[row.named(stem)] = _sidecar(row, symbols, chance)
    if chance.random() < 0.3:
        tensors[f"{stem.removesuffix('.weight')}{'.' if 'module' in form.weight.name else '_'}bias"] = ("F32", (shape[0],))
    return tensors


def _stored(size: str, page: Page, chance: random.Random) -> int:
    if size.isdigit():
        return int(size)
    symbol, _, divisor = size.partition("/")
    wanted = chance.choice(_COUNTS if symbol in ("experts", "height", "width", "depth") else _SIZES)
    factor = page.multiples.get(symbol, 1)
    return -(-(-(-wanted // factor) * factor) // int(divisor or 1))


def _sidecar(row: Row, symbols: dict[str, int], chance: random.Random) -> Geometry:
    sizes = (_size(size, symbols) for size in chance.choice(row.shapes))
    return chance.choice(row.dtypes), tuple(chance.randint(1, 60) if size is None else size for size in sizes)


def _unquantized(page: Page, chance: random.Random, units: list[str]) -> dict[str, Geometry]:
    """Return norms and tables in the dtypes that the page admits; a tree without units has at least one of them."""
    tensors: dict[str, Geometry] = {}
    matrices = list(page.matrices if page.forms or page.two_dtypes else page.matrices[:1])
    for number in range(chance.randint(2 if page.two_dtypes else 0 if units else 1, 3)):
        dtype = matrices[number % len(matrices)] if page.two_dtypes else chance.choice(matrices)
        tensors[f"model.table{number}.weight"] = (dtype, (chance.choice(_SIZES), chance.choice(_SIZES)))
    for number in range(chance.randint(0, 3)):
        alike = page.vectors_as_matrices and not tensors
        shape = chance.choice(((chance.choice(_SIZES),), (chance.choice(_SIZES),), ()))
        tensors[f"model.layers.{number}.norm.{chance.choice(('weight', 'bias', 'scale'))}"] = (
            chance.choice(page.matrices if alike else page.vectors),
            shape,
        )
    return tensors


def declare(tree: Tree, declared: Declared, page: Page, chance: random.Random) -> None:
    """Put into a tree what one way to declare the contract asks for, with or without what may be absent."""
    content: dict[str, Any] = {}
    for each in declared.require:
        if not each.values or ((each.optional or each.absent) and chance.random() < 0.5):
            continue
        _put(content, each.key.split("."), chance.choice(each.values), page, declared, tree)
    if declared.modules and declared.modules not in content:
        content[declared.modules] = {}
    if declared.place == "quantization_config":
        config = tree.files["config.json"]
        config = config.setdefault("text_config", {}) if chance.random() < 0.15 else config
        config["quantization_config"] = content
    elif declared.place == "header_metadata":
        tree.metadata["_quantization_metadata"] = content
    else:
        tree.files[declared.place + ".json"] = {"quantization": content}


def _put(content: dict[str, Any], steps: list[str], value: Any, page: Page, declared: Declared, tree: Tree) -> None:
    if len(steps) == 1:
        content[steps[0]] = value
    elif steps[0] == "*":
        for member in _modules(page, tree) if declared.modules else ["group_0"]:
            _put(content.setdefault(member, {}), steps[1:], value, page, declared, tree)
    else:
        _put(content.setdefault(steps[0], {}), steps[1:], value, page, declared, tree)


def _modules(page: Page, tree: Tree) -> list[str]:
    """Return the modules of the units, from the names and dtypes that the forms give to weights."""
    found = {}
    for name, (dtype, _) in tree.tensors.items():
        for form in page.forms:
            matched = form.weight.pattern.fullmatch(name)
            if matched and dtype in form.weight.dtypes:
                found[matched["stem"]] = None
    return list(found)
