"""`contracts`, `explain`, `schema`, `completion`, and what every command owes its user: help and a version."""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from click.testing import CliRunner

from tensorhub_contracts import __version__
from tensorhub_contracts.commands import tensorhub as group
from tensorhub_contracts.refusal_codes import explanations
from tensorhub_contracts.registry.registry import load_registry, registry_path
from tests.support.cli import TENSORHUB, on_a_terminal, tensorhub
from tests.support.trees import BLOCKWISE

COMMANDS = [
    "inspect", "artifact", "contracts", "plugins", "lanes", "satisfies", "produce", "decode", "kernels", "doctor", "explain", "schema",
    "completion",
]  # fmt: skip
SCHEMAS = ["artifact", "demand", "inspection", "lanes", "plugin-contracts", "plugins", "problem", "registry", "verdict"]


def invoke(*arguments: str) -> str:
    """Run a command that must succeed; return its standard output."""
    result = CliRunner().invoke(group, list(arguments))
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


# contracts


def test_contracts_lists_each_handle_on_a_line_with_its_status() -> None:
    lines = invoke("contracts").splitlines()
    assert [line.split()[0] for line in lines] == list(load_registry().contracts)
    assert all(line.split()[1] in ("decoded", "proved") for line in lines)
    assert {line.split()[0] for line in lines if line.split()[1] == "decoded"} >= {BLOCKWISE, "cozy.fp8-rowwise@1", "plain.bf16@1"}


def test_contracts_as_json() -> None:
    rows = json.loads(invoke("contracts", "--output", "json"))
    registry = load_registry()
    assert [each["handle"] for each in rows] == list(registry.contracts)
    for each in rows:
        assert each["digest"] == registry.digest(each["handle"])
        assert each["digest"].startswith("sha256:")
        assert each["summary"]
        assert each["decoder"] in ("shipped", "none")


def test_contracts_show() -> None:
    text = invoke("contracts", "show", BLOCKWISE)
    assert text.startswith(f"{BLOCKWISE}  {load_registry().digest(BLOCKWISE)}\n")
    for fact in (
        "block 128 x 128",
        "weight_scale_inv",
        "F32 or BF16 or F16 [out/128, in/128]",
        "[experts, out, in]",
        "quant_method = fp8",
        "weight_block_size = [128, 128]",
        "two roundings",
        "sm_89",
        "the direction of the scale",
    ):
        assert fact in text, fact


@pytest.mark.parametrize("handle", load_registry().contracts)
def test_every_contract_can_be_shown(handle: str) -> None:
    text = invoke("contracts", "show", handle)
    assert text.startswith(handle)
    facts = json.loads(invoke("contracts", "show", handle, "--output", "json"))
    assert facts["handle"] == handle
    assert facts["digest"] == load_registry().digest(handle)
    assert facts["normative"]["element"] == load_registry().contracts[handle].element


def test_contracts_show_of_an_unknown_handle_suggests_the_nearest_as_inspect_does() -> None:
    """A slip in a handle is a matter of usage, exit code 2: 1 is for a checkpoint that is refused."""
    run = tensorhub("contracts", "show", "hf.fp8-blokwise@1")
    assert f"Did you mean {BLOCKWISE}?" in run.err
    assert run.out == ""
    assert run.code == 2


def test_contracts_show_of_a_malformed_handle_shows_the_form() -> None:
    run = tensorhub("contracts", "show", "HF.FP8")
    assert "producer.format@major" in run.err
    assert run.code == 2


def test_contracts_show_of_a_major_ahead_names_the_newest() -> None:
    run = tensorhub("contracts", "show", "hf.fp8-blockwise@7")
    assert run.code in (1, 2)
    assert "contract-ahead" in run.err
    assert BLOCKWISE in run.err


# explain


@pytest.mark.parametrize("code", explanations())
def test_every_code_is_explained(code: str) -> None:
    text = invoke("explain", code)
    assert text.startswith(f"{code}: {explanations()[code].title}\n")
    words = " ".join(text.split())
    assert " ".join(explanations()[code].meaning.split()) in words
    assert f"What to do: {' '.join(explanations()[code].remedy.split())}" in words
    assert all(len(line) <= 100 for line in text.splitlines()[1:])


def test_explain_without_a_code_lists_all() -> None:
    lines = invoke("explain").splitlines()
    assert [line.split()[0] for line in lines] == list(explanations())
    assert all(line.endswith(explanations()[line.split()[0]].title) for line in lines)


def test_explain_of_several_codes_repeats_none() -> None:
    text = invoke("explain", "scale-grid", "file-empty", "scale-grid")
    assert [line.partition(":")[0] for line in text.splitlines() if line and line[0] != " "] == ["scale-grid", "file-empty"]


def test_explain_of_an_unknown_code_suggests_the_nearest() -> None:
    run = tensorhub("explain", "scale-mising")
    assert run.code == 2
    assert "did you mean scale-missing" in run.err


def test_explain_of_a_code_like_no_other_says_how_to_list_all() -> None:
    run = tensorhub("explain", "zzz")
    assert run.code == 2
    assert "`tensorhub explain` lists all" in run.err


# schema


@pytest.mark.parametrize("name", ["inspection", "registry"])
def test_a_schema_is_json_schema_2020_12(name: str) -> None:
    schema = json.loads(invoke("schema", name))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)
    references = list(_values(schema, "$ref"))
    assert references
    assert all(each.removeprefix("#/$defs/") in schema["$defs"] for each in references)


def _values(node: Any, key: str) -> Iterator[Any]:
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _values(each, key)
    if isinstance(node, dict) and key in node:
        yield node[key]


def registry_faults(content: Any) -> list[jsonschema.ValidationError]:
    """Judge a registry by the published schema."""
    return list(jsonschema.Draft202012Validator(json.loads(invoke("schema", "registry"))).iter_errors(content))


def shipped() -> dict[str, Any]:
    return tomllib.loads(Path(registry_path()).read_text("utf-8"))


def test_the_shipped_registry_fits_its_schema() -> None:
    assert registry_faults(shipped()) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content.pop("contract"),
        lambda content: content.update(extra=1),
        lambda content: content["contract"][0].pop("handle"),
        lambda content: content["contract"][0].update(elemment="F8_E4M3"),
        lambda content: content["contract"][0].update(element=8),
        lambda content: content["contract"][0].update(decoder="maybe"),
        lambda content: content["contract"][0]["unquantized"].update(matrix_dtypes="BF16"),
        lambda content: _blockwise(content).update(block=[128]),
        lambda content: _blockwise(content)["form"][0]["tensors"]["weight"].update(shapes=[["Out", "in"]]),
        lambda content: _blockwise(content)["form"][0]["tensors"]["weight"].update(shapes=[["out/0", "in"]]),
        lambda content: _blockwise(content)["form"][0]["tensors"]["weight"].update(shapes=[[0, "in"]]),
    ],
)
def test_a_spoilt_registry_does_not_fit(spoil: Callable[[dict[str, Any]], object]) -> None:
    content = copy.deepcopy(shipped())
    spoil(content)
    assert registry_faults(content)


def _blockwise(content: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in content["contract"] if each["handle"] == BLOCKWISE)
    return found


def test_an_unknown_schema_lists_the_known_ones() -> None:
    run = tensorhub("schema", "weights")
    assert run.code == 2
    assert [name for name in SCHEMAS if f"'{name}'" not in run.err] == []


# completion


@pytest.mark.parametrize(("shell", "marks"), [("bash", "complete -o"), ("zsh", "#compdef tensorhub"), ("fish", "complete --no-files")])
def test_the_completion_script(shell: str, marks: str) -> None:
    script = tensorhub("completion", shell).out
    assert marks in script
    assert f"_TENSORHUB_COMPLETE={shell}_complete" in script


def test_an_unknown_shell_is_a_matter_of_usage() -> None:
    run = tensorhub("completion", "tcsh")
    assert run.code == 2
    assert "fish" in run.err


def completed(line: str) -> list[str]:
    """Complete a command line as bash does; return the words that it would offer."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - (not line.endswith(" ")))}
    run = tensorhub(env={"_TENSORHUB_COMPLETE": "bash_complete", **words})
    assert run.err == ""
    return [each.partition(",")[2] for each in run.out.splitlines() if each]


def test_handles_complete() -> None:
    assert BLOCKWISE in completed("tensorhub inspect --contract hf")
    assert completed("tensorhub inspect --contract hf.fp8-b") == [BLOCKWISE]
    assert completed("tensorhub inspect --contract ") == list(load_registry().contracts)
    assert completed("tensorhub inspect --contract nothing-like-it") == []


def test_the_handle_to_show_completes_too() -> None:
    assert completed("tensorhub contracts show hf.fp8-b") == [BLOCKWISE]


def test_commands_complete() -> None:
    assert set(completed("tensorhub ")) == set(COMMANDS)
    assert completed("tensorhub ins") == ["inspect"]
    assert completed("tensorhub contracts s") == ["show"]


def test_formats_complete() -> None:
    assert set(completed("tensorhub inspect --output ")) == {"text", "json", "sarif", "junit", "github"}
    assert completed("tensorhub inspect --output s") == ["sarif"]


def test_codes_complete() -> None:
    assert completed("tensorhub explain scale-grid") == ["scale-grid", "scale-grid-transposed"]
    assert completed("tensorhub explain file-empty header-l") == ["header-length"]


def test_schemas_and_shells_complete() -> None:
    assert completed("tensorhub schema ") == SCHEMAS
    assert completed("tensorhub completion z") == ["zsh"]


# What every command owes its user.


def commands() -> dict[str, click.Command]:
    """Return every command by the words that call it."""
    context = click.Context(group)
    found: dict[str, click.Command] = {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {inner}": each for inner, each in command.commands.items()}
    return found


def test_the_version() -> None:
    assert invoke("--version") == f"tensorhub-contracts, version {__version__}\n"


def test_the_help_lists_every_command_with_what_it_does_and_the_exit_codes() -> None:
    text = invoke("--help")
    assert invoke("-h") == text
    for name in COMMANDS:
        assert any(len(line.split()) > 3 for line in text.splitlines() if line.strip().startswith(name)), name
    assert "Exit codes: 0 satisfied, 1 refused, 2 usage, 3 a fault" in text


@pytest.mark.parametrize("name", commands())
def test_the_help_of_a_command_says_what_it_does(name: str) -> None:
    text = invoke(*name.split(), "--help")
    first = text.split("\n\n")[1].splitlines()[0].strip()  # the usage above it may take several lines
    assert first.endswith((".", "not")) or len(first) > 50
    assert first[0].isupper()
    assert f"Usage: tensorhub {name}" in text
    assert all(each.help for each in commands()[name].params if isinstance(each, click.Option))


@pytest.mark.parametrize("name", commands())
def test_the_help_of_a_command_tells_its_exit_codes(name: str) -> None:
    text = " ".join(invoke(*name.split(), "--help").lower().split())
    assert "exits with" in text or "exit code" in text


def test_an_unknown_command_exits_with_2() -> None:
    run = tensorhub("inspekt")
    assert run.code == 2
    assert "inspekt" in run.err


@pytest.mark.parametrize("arguments", [("contracts",), ("contracts", "show", BLOCKWISE), ("explain", "scale-grid")])
def test_styles_are_for_terminals_alone(arguments: tuple[str, ...]) -> None:
    assert "\x1b[" in on_a_terminal(TENSORHUB, *arguments, out=True).terminal
    assert "\x1b" not in tensorhub(*arguments).out
