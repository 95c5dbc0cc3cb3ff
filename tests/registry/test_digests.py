"""Digests: what they cover, what they do not, and that a released one never changes."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensorhub_contracts.registry.digests import canonical_json
from tensorhub_contracts.registry.registry import load_registry, parse_registry
from tests.support.registry_texts import Table, changed, contract, shipped, small, to_toml

GOLDEN = Path(__file__).parents[1] / "data" / "released-digests.json"
BLOCKWISE = "hf.fp8-blockwise@1"


def digest(tables: Table, handle: str = BLOCKWISE) -> str:
    return parse_registry(to_toml(tables)).digest(handle)


def test_a_released_digest_never_changes() -> None:
    released: dict[str, str] = json.loads(GOLDEN.read_text("utf-8"))
    registry = load_registry()
    known = {*registry.contracts, *(each.handle for each in registry.superseded)}
    assert not set(released) - known, f"released, and gone from the registry: {sorted(set(released) - known)}. Old majors stay."
    found = {each.handle: each.digest for each in registry.superseded}
    found |= {handle: registry.digest(handle) for handle in registry.contracts}
    moved = {handle: found[handle] for handle in released if found[handle] != released[handle]}
    assert not moved, (
        f"The digest of a released contract never changes, and these did: {moved}. A change of a normative fact is a new major with a "
        f"handle of its own; leave {GOLDEN.name} as it is."
    )
    new = {handle: found[handle] for handle in found if handle not in released}
    assert not new, f"New contracts: add them to tests/data/{GOLDEN.name}, below the others: {json.dumps(new, indent=2)}"


def test_one_digest_computed_by_hand() -> None:
    """Written out independently of the code: what `hf.fp8-blockwise@1` means, in canonical JSON."""
    scales = '["BF16","F16","F32"]'
    text = (
        '{"block":[128,128],'
        '"declares":[{"require":['
        '{"absent":true,"equals":"dynamic","key":"activation_scheme"},'
        '{"any_of":["e4m3","float8_e4m3fn"],"key":"fmt","optional":true},'
        '{"equals":"fp8","key":"quant_method"},'
        '{"equals":[128,128],"key":"weight_block_size"}'
        '],"source":"quantization_config"},'
        '{"require":['
        '{"absent":true,"equals":128,"key":"group_size"},'
        '{"any_of":["FP8_BLOCK_SCALES","FP8_PB_WO"],"key":"quant_algo"}'
        '],"source":"hf_quant_config"}],'
        '"dense":{"matrix_dtypes":["BF16","F16","F32"],"vector_dtypes":["BF16","F16","F32"]},'
        '"element":"F8_E4M3",'
        '"forms":['
        '{"tensors":{'
        f'"scale":{{"dtypes":{scales},"name":"{{module}}.weight_scale_inv","shapes":[["out/128","in/128"]]}},'
        '"weight":{"dtypes":["F8_E4M3"],"name":"{module}.weight","shapes":[["out","in"]]}}},'
        '{"tensors":{'
        f'"scale":{{"dtypes":{scales},"name":"{{param}}_scale_inv","shapes":[["experts","out/128","in/128"]]}},'
        '"weight":{"dtypes":["F8_E4M3"],"name":"{param}","shapes":[["experts","out","in"]]}}}'
        "],"
        '"reference_dequant":"hf.fp8_blockwise.dequant@1",'
        '"scale_direction":"multiply"}'
    )
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text  # it is canonical
    assert load_registry().digest(BLOCKWISE) == "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def test_a_fact_beyond_ascii_is_covered_as_it_is_written_in_utf_8() -> None:
    assert canonical_json({"b": [1, True], "a": "é模"}) == '{"a":"é模","b":[1,true]}'.encode()


INFORMATIVE: list[tuple[str, Any]] = [
    ("summary", "Another sentence."),
    ("evidence", "inferred"),
    ("floors", {"fp8-w8a16": 75}),
    ("not_provable", ["values"]),
    ("source", "Somewhere else."),
    ("decoder", "none"),
    ("known_as", [{"corpus": "tensorfs v2", "handle": "hf.fp8-blockwise@1", "digest": "6b" * 32}]),
]


@pytest.mark.parametrize(("key", "value"), INFORMATIVE)
def test_what_is_for_people_changes_no_digest(key: str, value: Any) -> None:
    def change(tables: Table) -> None:
        assert contract(tables, BLOCKWISE).get(key) != value
        contract(tables, BLOCKWISE)[key] = value

    assert digest(changed(small(), change)) == digest(small())


def test_neither_the_handle_nor_the_name_of_a_form_is_part_of_the_digest() -> None:
    def change(tables: Table) -> None:
        contract(tables, BLOCKWISE)["form"][0]["name"] = "plain matrix"
        contract(tables, BLOCKWISE)["handle"] = "acme.blocks@7"

    assert digest(changed(small(), change), "acme.blocks@7") == digest(small())


def _block(tables: Table) -> Table:
    return contract(tables, BLOCKWISE)


NORMATIVE: dict[str, Callable[[Table], object]] = {
    "element": lambda c: c.update(element="F8_E5M2", floors={}),
    "block": lambda c: c.update(block=[128, 64]),
    "block-swapped": lambda c: c.update(block=[64, 128]),
    "no-block": lambda c: c.pop("block"),
    "scale-direction": lambda c: c.update(scale_direction="global-divides"),
    "reference-dequant": lambda c: c.update(reference_dequant="plain"),
    "multiple-of": lambda c: c.update(multiple_of={"in": 16}),
    "whole-tree": lambda c: c.update(whole_tree=True),
    "probe": lambda c: c.update(probe="acme.nibbles"),
    "dense-matrix": lambda c: c.update(unquantized={"matrix_dtypes": ["BF16"], "vector_dtypes": ["BF16", "F16", "F32"]}),
    "dense-vector": lambda c: c.update(unquantized={"matrix_dtypes": ["BF16", "F16", "F32"], "vector_dtypes": ["BF16"]}),
    "fewer-forms": lambda c: c["form"].pop(),
    "weight-name": lambda c: c["form"][0]["tensors"]["weight"].update(name="{param}.weight"),
    "weight-dtype": lambda c: c["form"][0]["tensors"]["weight"].update(dtypes=["F8_E4M3", "F8_E5M2"]),
    "scale-name": lambda c: c["form"][0]["tensors"]["scale"].update(name="{module}.weight_scale"),
    "scale-dtype": lambda c: c["form"][0]["tensors"]["scale"].update(dtypes=["F32"]),
    "scale-shape": lambda c: c["form"][0]["tensors"]["scale"].update(shapes=[["out/128", "in/64"]]),
    "scale-shape-transposed": lambda c: c["form"][0]["tensors"]["scale"].update(shapes=[["in/128", "out/128"]]),
    "one-more-shape": lambda c: c["form"][0]["tensors"]["scale"]["shapes"].append(["out", 1]),
    "scale-optional": lambda c: c["form"][0]["tensors"]["scale"].update(optional=True),
    "declares-source": lambda c: c["declares"][0].update(source="params"),
    "declares-nothing": lambda c: c.update(declares=[]),
    "one-requirement-less": lambda c: c["declares"][0]["require"].pop(),
    "requirement-key": lambda c: c["declares"][0]["require"][0].update(key="method"),
    "requirement-value": lambda c: c["declares"][0]["require"][1].update(equals=[128, 64]),
    "requirement-optional": lambda c: c["declares"][0]["require"][0].update(optional=True),
    "requirement-absent": lambda c: c["declares"][0]["require"][1].update(absent=True),
    "undeclared": lambda c: c.update(undeclared="allowed"),
    "undeclared-if-unique": lambda c: c.update(undeclared="if-unique"),
    "marker": lambda c: c.update(marker=[{"name": "mark", "dtypes": ["U8"], "shapes": [[0]]}]),
    "marker-shape": lambda c: c.update(marker=[{"name": "mark", "dtypes": ["U8"], "shapes": [[2]]}]),
    "required-form": lambda c: c["form"][0].update(required=True),
    "padded-scale": lambda c: c["form"][0]["tensors"]["scale"].update(shapes=[["out/128^4", "in/128"]]),
    "mixed": lambda c: c.update(unquantized={"matrix_dtypes": ["BF16", "F32"], "vector_dtypes": ["BF16"], "mixed": True}),
    "modules": lambda c: c["declares"][0].update(modules="layers"),
    "requirement-keys": lambda c: c["declares"][0]["require"].append({"key": "layers", "keys": ["format"]}),
    "requirement-any-of": lambda c: c["declares"][0]["require"][3].update(any_of=["e4m3"]),
}


@pytest.mark.parametrize("change", NORMATIVE.values(), ids=NORMATIVE)
def test_every_normative_fact_changes_the_digest(change: Callable[[Table], object]) -> None:
    assert digest(changed(small(), lambda tables: change(_block(tables)) and None)) != digest(small())


def test_normative_facts_give_different_digests_from_one_another() -> None:
    digests = [digest(changed(small(), lambda tables, change=change: change(_block(tables)) and None)) for change in NORMATIVE.values()]
    assert len(set(digests)) == len(NORMATIVE)


@pytest.mark.parametrize("seed", range(6))
def test_order_is_no_fact(seed: int) -> None:
    """Of contracts, keys, forms, tensors, dtypes, shapes, declarations and requirements."""
    rng = random.Random(seed)

    def shuffled(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            items = [(name, shuffled(each, name)) for name, each in value.items()]
            rng.shuffle(items)
            return dict(items)
        if isinstance(value, list):
            each_shuffled = [shuffled(each) for each in value]
            # The order of a block's two sides and of the dimensions of a shape is a fact.
            if key in ("contract", "form", "declares", "require", "dtypes", "shapes", "any_of", "matrix_dtypes", "vector_dtypes"):
                rng.shuffle(each_shuffled)
            return each_shuffled
        return value

    registry, other = load_registry(), parse_registry(to_toml(shuffled(shipped())))
    assert {handle: other.digest(handle) for handle in other.contracts} == {
        handle: registry.digest(handle) for handle in registry.contracts
    }


def test_a_digest_is_a_sha256_in_lower_case() -> None:
    registry = load_registry()
    for handle in registry.contracts:
        kind, _, value = registry.digest(handle).partition(":")
        assert kind == "sha256"
        assert len(bytes.fromhex(value)) == 32
        assert value == value.lower()
