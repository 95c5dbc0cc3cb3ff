"""Compiled forms say what their TOML says, fact for fact and digest for digest, and count only whole and beside that very text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tensorhub_contracts import compiled, refusal_codes
from tensorhub_contracts.errors import RegistryError
from tensorhub_contracts.refusal_codes import compile_codes, explanations
from tensorhub_contracts.registry import registry as registry_module
from tensorhub_contracts.registry.compiled import compile_registry, compiled_registry
from tensorhub_contracts.registry.digests import contract_digest
from tensorhub_contracts.registry.registry import load_registry, parse_registry, registry_path

SOURCE = Path(registry_path()).read_bytes().decode()
CODES = Path(refusal_codes.__file__).with_name("refusal_codes.toml").read_bytes().decode()

#: A change that leaves JSON of the same keys, and one that leaves none.
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a digest is another": lambda data: data.replace(b'"sha256:', b'"sha256:0', 1),
    "a fact is another": lambda data: data.replace(b'"element": "BF16"', b'"element": "BF17"', 1),
    "cut short": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "the checksum is another": lambda data: data[:-2] + (b"1" if data[-2:-1] == b"0" else b"0") + b"}",
    "no checksum": lambda data: data.rpartition(b", ")[0] + b"}",
    "bytes are appended": lambda data: data + b"\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which compiled forms are looked for; nothing is remembered before or afterwards."""
    codes = tmp_path / "refusal_codes.toml"
    codes.write_bytes(CODES.encode())
    monkeypatch.setattr(compiled, "FOLDER", str(tmp_path))
    for cached in (load_registry, explanations):
        cached.cache_clear()
    yield tmp_path
    for cached in (load_registry, explanations):
        cached.cache_clear()


@pytest.fixture
def no_toml(monkeypatch: pytest.MonkeyPatch) -> None:
    """TOML cannot be parsed: what is read was compiled."""
    monkeypatch.setitem(sys.modules, "tomllib", None)


def facts(found: Any) -> dict[str, Any]:
    return {field.name: getattr(found, field.name) for field in attrs.fields(type(found)) if field.name != "known_digests"}


def test_the_compiled_registry_is_the_registry_fact_for_fact(package: Path, request: pytest.FixtureRequest) -> None:
    (package / "registry.json").write_bytes(compile_registry(SOURCE).encode())
    from_toml = parse_registry(SOURCE)
    request.getfixturevalue("no_toml")
    found = load_registry()
    assert facts(found) == facts(from_toml)
    assert list(found.contracts) == list(from_toml.contracts)
    assert list(found.lanes) == list(from_toml.lanes)
    assert found.known_digests == {handle: contract_digest(contract) for handle, contract in from_toml.contracts.items()}


def test_the_compiled_codes_are_the_codes(package: Path, request: pytest.FixtureRequest) -> None:
    expected = list(explanations().items())
    explanations.cache_clear()
    (package / "refusal_codes.json").write_bytes(compile_codes(CODES).encode())
    request.getfixturevalue("no_toml")
    assert list(explanations().items()) == expected


def test_without_compiled_forms_the_toml_is_read(package: Path, no_toml: None) -> None:
    for read in (load_registry, explanations):
        with pytest.raises(ModuleNotFoundError, match="tomllib"):
            read()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_form_is_passed_over(package: Path, damage: str) -> None:
    whole = compile_registry(SOURCE).encode()
    damaged = DAMAGES[damage](whole)
    assert damaged != whole
    (package / "registry.json").write_bytes(damaged)
    assert compiled_registry(SOURCE) is None
    assert facts(load_registry()) == facts(parse_registry(SOURCE))
    (package / "registry.json").write_bytes(whole)
    assert compiled_registry(SOURCE) is not None


def test_a_form_of_another_text_is_passed_over(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One character of a comment suffices: nothing is asked of times or sizes."""
    other = SOURCE.replace("Data, not code.", "data, not code.")
    assert len(other) == len(SOURCE)
    assert other != SOURCE
    (package / "registry.json").write_bytes(compile_registry(other).encode())
    assert compiled_registry(SOURCE) is None
    assert compiled_registry(other) is not None
    (package / "other.toml").write_bytes(other.replace('handle = "plain.f32@1"', 'handle = "plain.f32@7"').encode())
    monkeypatch.setattr(registry_module, "registry_path", lambda: str(package / "other.toml"))
    assert "plain.f32@7" in load_registry().contracts


def test_codes_of_another_text_and_damaged_ones_are_passed_over(package: Path) -> None:
    expected = list(explanations())
    other = CODES.replace("[scale-grid]", "[scale-grim]")
    for data in (compile_codes(other).encode(), compile_codes(CODES).replace("Check the path.", "Check no path.").encode()):
        explanations.cache_clear()
        (package / "refusal_codes.json").write_bytes(data)
        assert list(explanations()) == expected
        assert explanations()["checkpoint-not-found"].remedy == "Check the path."


def test_a_registry_with_faults_is_not_compiled() -> None:
    with pytest.raises(RegistryError):
        compile_registry(SOURCE.replace('element = "BF16"', 'element = "BF17"', 1))


def test_a_compiled_form_is_json_that_holds_its_source() -> None:
    for text, source in ((compile_registry(SOURCE), SOURCE), (compile_codes(CODES), CODES)):
        assert json.loads(text)["source"] == source
