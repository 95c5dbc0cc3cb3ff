"""`implements_contract`: what a decoder may declare, where the declaration is kept, and every wrong one with its message."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from tensorhub_contracts import (
    DeclarationError,
    DecoderDeclaration,
    FaultError,
    OwnedContracts,
    contract_decoders_of,
    implements_contract,
    read_contracts,
)
from tensorhub_contracts.registry.registry import load_registry
from tests.support.registry_texts import to_toml

BLOCKWISE = "hf.fp8-blockwise@1"
ROWWISE = "cozy.fp8-rowwise@1"
PLAIN = "plain.bf16@1"
VALID: dict[str, Any] = {
    "contract": BLOCKWISE,
    "serves": ("fp8-w8a16", "fp8-w8a32"),
    "composes_lora": False,
    "requires": ("torch", "cuda.bindings.nvrtc"),
    "why": "A layout that is published.",
}


def declared(**changes: Any) -> Callable[[Any], Any]:
    return implements_contract(**{**VALID, **changes})


blockwise = declared()
rowwise = declared(contract=ROWWISE)
plain = declared(contract=PLAIN, serves=("bf16-w16a16",), requires=())


def handles(decoder: Any) -> list[str]:
    return [each.contract for each in contract_decoders_of(decoder)]


def problems(**changes: Any) -> tuple[str, ...]:
    with pytest.raises(DeclarationError) as caught:
        declared(**changes)
    assert isinstance(caught.value, FaultError)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


@pytest.fixture(scope="module")
def owned() -> OwnedContracts:
    table = {
        "handle": "acme.int8-tensor@1", "summary": "INT8.", "element": "I8", "reference_dequant": "none", "evidence": "code",
        "source": "Acme.", "not_provable": ["values"], "scale_direction": "multiply", "floors": {"int8-w8a16": "none"},
        "form": [
            {
                "name": "matrix",
                "tensors": {
                    "weight": {"name": "{module}.weight", "dtypes": ["I8"], "shapes": [["out", "in"]]},
                    "scale": {"name": "{module}.weight_scale", "dtypes": ["F32"], "shapes": [[]]},
                },
            }
        ],
    }  # fmt: skip
    return read_contracts(to_toml({"schema": 1, "producer": "acme", "contract": [table]}))


# Where declarations are kept.


def test_a_function_is_returned_as_it_is_and_holds_what_was_declared() -> None:
    def decode(value: int) -> int:
        """Doubles."""
        return value * 2

    assert blockwise(decode) is decode
    assert decode(21) == 42
    assert (decode.__name__, decode.__doc__) == ("decode", "Doubles.")
    assert contract_decoders_of(decode) == (
        DecoderDeclaration(
            contract=BLOCKWISE,
            digest=load_registry().digest(BLOCKWISE),
            serves=("fp8-w8a16", "fp8-w8a32"),
            composes_lora=False,
            requires=("torch", "cuda.bindings.nvrtc"),
            why="A layout that is published.",
        ),
    )


def test_what_a_decoder_does_not_say_of_itself() -> None:
    """It computes with torch, and it is there for what its docstring says first."""

    @implements_contract(contract=BLOCKWISE, serves=("fp8-w8a16",), composes_lora=False)
    def decode() -> None:
        """Decodes what is published.

        And more.
        """

    (found,) = contract_decoders_of(decode)
    assert (found.requires, found.why) == (("torch",), "Decodes what is published.")
    (silent,) = contract_decoders_of(implements_contract(contract=BLOCKWISE, serves=("fp8-w8a16",), composes_lora=False)(lambda: None))
    assert (silent.requires, silent.why) == (("torch",), "not stated")


def test_nothing_is_required_of_a_decoder_that_needs_nothing_and_one_may_compose_adapters() -> None:
    (found,) = contract_decoders_of(declared(requires=(), composes_lora=True)(lambda: None))
    assert (found.requires, found.composes_lora) == ((), True)


@pytest.mark.parametrize("body", ["fp8-w8a8-dynamic", "fp8-w8a16", "fp8-w8a32"])
def test_any_body_that_the_contract_states_a_floor_for_may_be_served(body: str) -> None:
    (found,) = contract_decoders_of(declared(serves=(body,))(lambda: None))
    assert found.serves == (body,)


def test_stacked_declarations_stand_in_the_order_in_which_they_are_written() -> None:
    @rowwise
    @plain
    @blockwise
    def decode() -> None: ...

    assert handles(decode) == [ROWWISE, PLAIN, BLOCKWISE]


class Decoders:
    """Every kind of method, with the decorator above and below the one that makes it."""

    @plain
    @rowwise
    def method(self) -> str:
        return "method"

    @staticmethod
    @blockwise
    def static_below() -> str:
        return "static below"

    @blockwise
    @staticmethod
    def static_above() -> str:
        return "static above"

    @classmethod
    @rowwise
    def class_below(cls) -> str:
        return f"class below {cls.__name__}"

    @rowwise
    @classmethod
    def class_above(cls) -> str:
        return f"class above {cls.__name__}"

    def undeclared(self) -> None: ...


@pytest.mark.parametrize("owner", [Decoders, Decoders()], ids=["of the class", "of an instance"])
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("method", [PLAIN, ROWWISE]),
        ("static_below", [BLOCKWISE]),
        ("static_above", [BLOCKWISE]),
        ("class_below", [ROWWISE]),
        ("class_above", [ROWWISE]),
        ("undeclared", []),
    ],
)
def test_every_kind_of_method_holds_what_was_declared(owner: Any, name: str, wanted: list[str]) -> None:
    assert handles(getattr(owner, name)) == wanted
    assert handles(vars(Decoders)[name]) == wanted  # as it lies in the class, not yet bound


def test_declared_methods_are_still_called_as_before() -> None:
    called = [getattr(Decoders(), name)() for name in ("method", "static_below", "static_above", "class_below", "class_above")]
    assert called == ["method", "static below", "static above", "class below Decoders", "class above Decoders"]


def test_a_static_or_class_method_is_returned_as_it_is() -> None:
    for member in (staticmethod(lambda: None), classmethod(lambda cls: None)):
        assert blockwise(member) is member
        assert handles(member) == [BLOCKWISE]


def test_a_class_gives_what_its_methods_declare_and_each_once() -> None:
    class Child(Decoders):
        @declared(contract="plain.f16@1", serves=("bf16-w16a16",))
        def more(self) -> None: ...

    assert handles(Decoders) == [PLAIN, ROWWISE, BLOCKWISE]
    assert sorted(handles(Child)) == sorted(["plain.f16@1", PLAIN, ROWWISE, BLOCKWISE])
    assert handles(Decoders) == [PLAIN, ROWWISE, BLOCKWISE]


def test_a_class_whose_methods_declare_nothing_gives_nothing() -> None:
    assert contract_decoders_of(type("Empty", (), {"method": lambda self: None})) == ()


def test_a_wrapper_made_with_wraps_holds_what_the_function_declares_and_one_without_does_not() -> None:
    @blockwise
    def decode() -> int:
        return 1

    @functools.wraps(decode)
    def wrapped() -> int:
        return decode() + 1

    def bare() -> int:
        return decode() + 1

    assert handles(wrapped) == [BLOCKWISE]
    assert contract_decoders_of(wrapped) == contract_decoders_of(decode)
    assert handles(bare) == []
    assert wrapped() == 2


def test_what_is_declared_on_a_wrapper_is_not_declared_on_what_it_wraps() -> None:
    @blockwise
    def decode() -> None: ...

    @rowwise
    @functools.wraps(decode)
    def wrapped() -> None: ...

    assert handles(wrapped) == [ROWWISE, BLOCKWISE]
    assert handles(decode) == [BLOCKWISE]


def kind(value: object) -> str:
    return type(value).__name__


@pytest.mark.parametrize(
    "other", [None, 5, "decode", (), len, functools.partial(Decoders.static_below), property(lambda self: None), Decoders()], ids=kind
)
def test_what_is_no_function_declares_nothing(other: Any) -> None:
    assert contract_decoders_of(other) == ()


class CalledLikeAFunction:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    "other",
    [Decoders, Decoders(), CalledLikeAFunction(), None, "decode", len, functools.partial(print), property(lambda self: None)],
    ids=kind,
)
def test_only_functions_and_methods_are_decorated(other: Any) -> None:
    with pytest.raises(DeclarationError) as caught:
        blockwise(other)
    assert caught.value.problems == (f"implements_contract: decorates a function or a method, not {other!r}",)
    assert "__contract_decoders__" not in getattr(other, "__dict__", {})


def test_two_functions_share_nothing() -> None:
    def first() -> None: ...
    def second() -> None: ...

    decorator = declared()
    decorator(first)
    assert handles(second) == []
    decorator(second)
    rowwise(first)
    assert (handles(first), handles(second)) == ([ROWWISE, BLOCKWISE], [BLOCKWISE])


def test_the_same_declaration_twice_is_one() -> None:
    @blockwise
    @rowwise
    @declared()
    def decode() -> None: ...

    assert handles(decode) == [ROWWISE, BLOCKWISE]


@pytest.mark.parametrize(
    "change",
    [{"serves": ("fp8-w8a16",)}, {"composes_lora": True}, {"requires": ()}, {"why": "Another reason."}],
    ids=lambda each: next(iter(each)),
)
def test_two_declarations_of_one_contract_that_differ_are_refused(change: dict[str, Any]) -> None:
    def decode() -> None: ...

    blockwise(decode)
    with pytest.raises(DeclarationError) as caught:
        declared(**change)(decode)
    (problem,) = caught.value.problems
    assert problem.startswith("contract: ")
    assert decode.__qualname__ in problem
    assert f"declares {BLOCKWISE} twice, and differently" in problem
    assert contract_decoders_of(decode) == contract_decoders_of(blockwise(lambda: None))


# What is wrong with a declaration.

HINT = "contract: one that your plugin owns is given as the Contract itself, from read_contracts()"
BODIES = ", ".join(load_registry().lanes)


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ("hf.fp8-blockwise", "handle-malformed", "producer.format@major"),
        ("HF.fp8-blockwise@1", "handle-malformed", f"Did you mean {BLOCKWISE}?"),
        ("", "handle-malformed", "found ''"),
        ("hf.fp8-blockwse@1", "contract-unknown", f"Did you mean {BLOCKWISE}?"),
        ("acme.int8-tensor@1", "contract-unknown", "acme.int8-tensor@1"),
        ("hf.fp8-blockwise@9", "contract-ahead", f"up to {BLOCKWISE}"),
    ],
)
def test_a_handle_that_cannot_be_had_is_refused_as_everywhere_else(given: str, code: str, words: str) -> None:
    first, hint = problems(contract=given)
    assert first.startswith(f"contract: {code}: ")
    assert words in first
    assert hint == HINT


@pytest.mark.parametrize("given", [None, 5, b"hf.fp8-blockwise@1", ["hf.fp8-blockwise@1"], ("hf.fp8-blockwise@1",)])
def test_a_contract_is_text_or_a_contract(given: Any) -> None:
    assert problems(contract=given) == (f"contract: a handle or a Contract, not {given!r}",)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"serves": ()}, "serves: at least one lane body"),
        ({"serves": ("fp8-w8a16", "fp8-w8a32", "fp8-w8a16")}, "serves: fp8-w8a16 is named more than once"),
        ({"serves": ["fp8-w8a16"]}, "serves: a tuple of strings, not ['fp8-w8a16']"),
        ({"serves": "fp8-w8a16"}, "serves: a tuple of strings, not 'fp8-w8a16'"),
        ({"serves": None}, "serves: a tuple of strings, not None"),
        ({"serves": ("fp8-w8a16", 8)}, "serves: a tuple of strings, not ('fp8-w8a16', 8)"),
        ({"serves": ("fp8-w8a64",)}, f"serves: fp8-w8a64: not a body of the lane table; bodies are {BODIES}"),
        ({"serves": ("fp8",)}, f"serves: fp8: not a body of the lane table; bodies are {BODIES}"),
        (
            {"serves": ("fp8-w8a16+eager",)},
            "serves: fp8-w8a16+eager: a decoder serves a body, fp8-w8a16; the lane table says which executions it has",
        ),
        ({"serves": ("int8-w8a16",)}, f"serves: int8-w8a16: its weights are I8, and those of {BLOCKWISE} are F8_E4M3"),
        (
            {"serves": ("fp8-w8a8-dynamic",), "contract": "cozy.fp8-storage@1"},
            "serves: fp8-w8a8-dynamic: cozy.fp8-storage@1 states no floor for it; floors are stated for fp8-w8a16, fp8-w8a32",
        ),
        ({"composes_lora": "no"}, "composes_lora: True or False, not 'no'"),
        ({"composes_lora": 1}, "composes_lora: True or False, not 1"),
        ({"composes_lora": None}, "composes_lora: True or False, not None"),
        ({"requires": ["torch"]}, "requires: a tuple of strings, not ['torch']"),
        ({"requires": "torch"}, "requires: a tuple of strings, not 'torch'"),
        ({"requires": (1,)}, "requires: a tuple of strings, not (1,)"),
        ({"requires": ("torch", "numpy", "torch")}, "requires: torch is named more than once"),
        ({"requires": ("nvidia-cutlass",)}, "requires: 'nvidia-cutlass' is not the name of a module"),
        ({"requires": ("torch>=2.8",)}, "requires: 'torch>=2.8' is not the name of a module"),
        ({"requires": ("torch==2.8.0",)}, "requires: 'torch==2.8.0' is not the name of a module"),
        ({"requires": ("",)}, "requires: '' is not the name of a module"),
        ({"requires": ("torch.",)}, "requires: 'torch.' is not the name of a module"),
        ({"requires": (".torch",)}, "requires: '.torch' is not the name of a module"),
        ({"requires": ("torch ",)}, "requires: 'torch ' is not the name of a module"),
        ({"requires": ("torch\n",)}, "requires: 'torch\\n' is not the name of a module"),
        ({"requires": ("2torch",)}, "requires: '2torch' is not the name of a module"),
        ({"why": ""}, "why: a sentence, not ''"),
        ({"why": " \n"}, "why: a sentence, not ' \\n'"),
        ({"why": None}, "why: a sentence, not None"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_refused_by_its_name(change: dict[str, Any], problem: str) -> None:
    assert problems(**change) == (problem,)


@pytest.mark.parametrize("body", ["", "FP8-w8a16", "fp8-w8a16 ", "fp8-w8a16\n", "fp8-w8a16+jit", "fp8+eager"])
def test_a_body_that_is_not_well_formed_is_refused_as_a_lane_is(body: str) -> None:
    (problem,) = problems(serves=(body,))
    assert problem.startswith(f"serves: lane-malformed: {body}: ")
    assert repr(body) in problem


def test_everything_that_is_wrong_is_listed_at_once() -> None:
    found = problems(contract="hf.fp8-blockwse@1", serves=["x"], composes_lora="no", requires=("torch>=2", "torch>=2", "a-b"), why="")
    assert [each.partition(":")[0] for each in found] == [
        "contract", "contract", "serves", "requires", "requires", "requires", "requires", "composes_lora", "why",
    ]  # fmt: skip
    found = problems(serves=("fp8", "fp8-w8a16", "fp8+eager", "int8-w8a16", "fp8-w8a16+eager"), requires=[])
    assert [each.partition(":")[0] for each in found] == ["requires", "serves", "serves", "serves", "serves"]


@pytest.mark.parametrize("name", ["contract", "serves", "composes_lora"])
def test_no_argument_that_decides_has_a_default(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        implements_contract(**{key: value for key, value in VALID.items() if key != name})


def test_arguments_are_given_by_name() -> None:
    with pytest.raises(TypeError):
        implements_contract(*VALID.values())  # type: ignore[misc]


# Contracts that are given as themselves.


def test_a_contract_that_a_plugin_owns_is_given_as_itself(owned: OwnedContracts) -> None:
    mine = owned["acme.int8-tensor@1"]
    (found,) = contract_decoders_of(declared(contract=mine, serves=("int8-w8a16",))(lambda: None))
    assert found.contract == "acme.int8-tensor@1"
    assert found.digest.startswith("sha256:")
    assert found.digest not in {load_registry().digest(handle) for handle in load_registry().contracts}
    assert problems(contract=mine) == (
        "serves: fp8-w8a16: its weights are F8_E4M3, and those of acme.int8-tensor@1 are I8",
        "serves: fp8-w8a32: its weights are F8_E4M3, and those of acme.int8-tensor@1 are I8",
    )
    assert problems(contract=attrs.evolve(mine, floors={}), serves=("int8-w8a16",)) == (
        "serves: int8-w8a16: acme.int8-tensor@1 states no floor for it; floors are stated for none",
    )


def test_a_shipped_contract_may_be_given_as_itself_too() -> None:
    given = load_registry().contracts[BLOCKWISE]
    by_handle = contract_decoders_of(blockwise(lambda: None))
    assert contract_decoders_of(declared(contract=given)(lambda: None)) == by_handle
    assert contract_decoders_of(declared(contract=attrs.evolve(given))(lambda: None)) == by_handle


@pytest.mark.parametrize("change", [{"summary": "Mine."}, {"block": (64, 64)}, {"floors": {"fp8-w8a16": 75, "fp8-w8a32": 75}}])
def test_an_altered_copy_of_a_shipped_contract_is_refused(change: dict[str, Any]) -> None:
    altered = attrs.evolve(load_registry().contracts[BLOCKWISE], **change)
    assert problems(contract=altered) == (f"contract: {BLOCKWISE} is a shipped contract, and nothing may replace it",)


def test_the_digest_is_that_of_the_facts_and_not_of_their_wording(owned: OwnedContracts) -> None:
    mine = owned["acme.int8-tensor@1"]

    def digest(**change: Any) -> str:
        given = attrs.evolve(mine, **change)
        return contract_decoders_of(declared(contract=given, serves=("int8-w8a16",))(lambda: None))[0].digest

    assert digest(summary="Other words.") == digest() != digest(scale_direction="none")


# What declaring costs: a module of decoders is imported to be looked at, where there may be no torch.


@pytest.fixture(scope="module")
def modules() -> list[str]:
    """Every module that declares decoders; those that compute are imported when a decoder runs."""
    folder = Path(__file__).parents[2] / "decoders" / "tensorhub_decoders"
    found = [
        f"tensorhub_decoders.{path.stem}" for path in sorted(folder.glob("*.py")) if "@implements_contract(" in path.read_text("utf-8")
    ]
    assert "tensorhub_decoders.hf_fp8_blockwise" in found
    return ["tensorhub_contracts.plugins.declaring", "tensorhub_decoders", *found]


def _python(program: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_decoders_can_be_imported_where_torch_cannot(modules: list[str]) -> None:
    program = (
        "import importlib, sys\n"
        "sys.modules.update({'torch': None, 'numpy': None})\n"
        "found = [importlib.import_module(name) for name in sys.argv[1:]]\n"
        "from tensorhub_contracts import contract_decoders_of\n"
        "assert any(contract_decoders_of(each) for module in found for each in vars(module).values())\n"
    )
    _python(program, *modules)


def test_importing_decoders_does_not_so_much_as_ask_for_torch(modules: list[str]) -> None:
    program = (
        "import importlib, sys\n"
        "asked = []\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        asked.append(name.partition('.')[0])\n"
        "sys.meta_path.insert(0, Watch())\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "assert 'tensorhub_contracts' in asked\n"
        "assert not {'torch', 'numpy', 'safetensors'} & set(asked), asked\n"
    )
    _python(program, *modules)


def test_a_class_declares_what_its_methods_declare_and_not_what_they_replaced() -> None:
    declare = implements_contract(contract="plain.bf16@1", serves=("bf16-w16a16",), composes_lora=True, requires=(), why="It is here.")

    class Base:
        @declare
        def decode(self) -> None: ...

        @declare
        def other(self) -> None: ...

    class Replacing(Base):
        def decode(self) -> None: ...

    class Differing(Base):
        @implements_contract(contract="plain.f16@1", serves=("bf16-w16a16",), composes_lora=True, requires=(), why="It is here.")
        def decode(self) -> None: ...

        other = None  # type: ignore[assignment]  # taken away

    assert [each.contract for each in contract_decoders_of(Base)] == ["plain.bf16@1"]
    assert contract_decoders_of(Replacing) == contract_decoders_of(Base.other)
    assert contract_decoders_of(Differing) == contract_decoders_of(Differing.decode)
