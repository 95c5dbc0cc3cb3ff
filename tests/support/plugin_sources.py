"""The text of plugins: decoders that declare and never decode, and the contracts that a plugin owns."""

from __future__ import annotations

from tests.support.environments import Project, project

BLOCKWISE = "hf.fp8-blockwise@1"

#: A contract of the shipped registry that no shipped decoder reads.
UNREAD = "compressed-tensors.fp8-block@1"

INT8 = "acme.int8-channel@1"

WHY = "A test needs it."

DECODER = """
@implements_contract(contract={contract}, serves={serves!r}, composes_lora={lora!r}, requires={requires!r}, why={why!r})
def {name}(inspection, *, lane, dtype):
    raise NotImplementedError
"""

HOOK = """
@hookimpl
def provide_decoders():
    return ({name},)
"""

HEAD = """from tensorhub_contracts import hookimpl, implements_contract, read_contracts

TENSORHUB_PLUGIN_API = 1
"""


def declared(
    contract: str,
    serves: tuple[str, ...] = ("fp8-w8a16",),
    *,
    lora: bool = True,
    requires: tuple[str, ...] = (),
    why: str = WHY,
    name: str = "decode",
) -> str:
    """Return a decoder; `contract` is a handle, or an expression that stands for a contract."""
    expression = repr(contract) if "(" not in contract and "[" not in contract else contract
    return DECODER.format(contract=expression, serves=serves, lora=lora, requires=requires, why=why, name=name)


def decoding(
    contract: str,
    serves: tuple[str, ...] = ("fp8-w8a16",),
    *,
    lora: bool = True,
    requires: tuple[str, ...] = (),
    why: str = WHY,
) -> str:
    """Return a module with one decoder, of a contract of the shipped registry."""
    return HEAD + declared(contract, serves, lora=lora, requires=requires, why=why) + HOOK.format(name="decode")


def contracts(
    handle: str = INT8,
    *,
    element: str = "I8",
    floors: str = '"int8-w8a16" = "none"',
    scale: str = '["out"]',
    summary: str = "INT8, one scale a row.",
) -> str:
    """Return the TOML of one contract with a scale beside each weight."""
    return f'''schema = 1
producer = "{handle.partition(".")[0]}"

[[contract]]
handle = "{handle}"
summary = "{summary}"
element = "{element}"
scale_direction = "multiply"
evidence = "code"
reference_dequant = "none"
floors = {{ {floors} }}
not_provable = ["scale-direction", "values"]
source = "A test."

[[contract.form]]
name = "matrix"
tensors.weight = {{ name = "{{module}}.weight", dtypes = ["{element}"], shapes = [["out", "in"]] }}
tensors.scale = {{ name = "{{module}}.weight_scale", dtypes = ["F32"], shapes = [{scale}] }}
'''


def owning(toml: str, handle: str = INT8, serves: tuple[str, ...] = ("int8-w8a16",), *, why: str = WHY, lora: bool = True) -> str:
    """Return a module that owns a contract and decodes it."""
    owned = f"\nCONTRACTS = read_contracts({toml!r})\n\n@hookimpl\ndef provide_contracts():\n    return CONTRACTS\n"
    return HEAD + owned + declared(f"CONTRACTS[{handle!r}]", serves, why=why, lora=lora) + HOOK.format(name="decode")


def plugin(module: str, text: str, *, entry: str = "", distribution: str = "", version: str = "1.0") -> Project:
    """Return a project of one module; entry point and distribution have its name unless they are given others."""
    return project(distribution or module.replace("_", "-"), {entry or module: module}, {f"{module}.py": text}, version)


def int8(version: str = "1.0", text: str = "") -> Project:
    """Return a plugin, `int8` of `acme-int8`, that owns a contract and needs nothing to decode it."""
    return plugin("acme_int8", text or owning(contracts()), entry="int8", version=version)
