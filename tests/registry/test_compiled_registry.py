"""The compiled registry says what the TOML says, counts only beside that very text, and is ignored if it is damaged."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tensorhub_contracts.errors import RegistryError
from tensorhub_contracts.registry import registry as registry_module
from tensorhub_contracts.registry.compiled import COMPILED, compile_registry, read_compiled
from tensorhub_contracts.registry.registry import Registry, load_registry, parse_registry

ROOT = Path(__file__).parents[2]
SOURCE = (ROOT / "registry.toml").read_text("utf-8")


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package folder with a registry and its compiled form, which the next look reads."""
    (tmp_path / "registry.toml").write_text(SOURCE, "utf-8")
    (tmp_path / COMPILED).write_text(compile_registry(SOURCE), "utf-8")
    monkeypatch.setattr(registry_module, "_PACKAGE", str(tmp_path))
    return tmp_path


def loaded() -> Registry:
    """Read what a process that has just begun reads."""
    return load_registry.__wrapped__()


def facts(registry: Registry) -> tuple[object, ...]:
    return (
        registry.contracts,
        registry.sidecars,
        registry.payloads,
        registry.reference_dequants,
        registry.lanes,
        registry.conversions,
        registry.superseded,
        registry.decoded,
    )


def test_the_compiled_form_has_every_fact_and_every_digest(installation: Path) -> None:
    parsed, compiled = parse_registry(SOURCE), loaded()
    assert facts(compiled) == facts(parsed)
    assert compiled.known_digests == {handle: parsed.digest(handle) for handle in parsed.contracts}


def test_it_is_read_and_not_the_toml(installation: Path) -> None:
    content = json.loads((installation / COMPILED).read_text("utf-8"))
    content["content"]["contract"][0]["summary"] = "read from the compiled form"
    (installation / COMPILED).write_text(json.dumps(content), "utf-8")
    assert next(iter(loaded().contracts.values())).summary == "read from the compiled form"


def test_a_changed_toml_is_seen_at_once(installation: Path) -> None:
    """The compiled form of another text is none, however new its file is."""
    changed = SOURCE.replace('summary = "Unquantized BF16', 'summary = "Changed BF16')
    assert changed != SOURCE
    (installation / "registry.toml").write_text(changed, "utf-8")
    (installation / COMPILED).touch()
    assert loaded().contracts["plain.bf16@1"].summary.startswith("Changed BF16")


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"digests"', '"digest"'),
        lambda text: "null",
        lambda text: text.replace('"element": "BF16"', '"element": 16', 1),
    ],
    ids=["empty", "cut", "without digests", "null", "another type"],
)
def test_a_damaged_one_is_ignored(installation: Path, damage: object) -> None:
    path = installation / COMPILED
    damaged = damage(path.read_text("utf-8"))  # type: ignore[operator]  # a function
    path.write_text(damaged, "utf-8")
    assert read_compiled(damaged.encode(), SOURCE) is None
    assert facts(loaded()) == facts(parse_registry(SOURCE))


def test_without_one_the_toml_is_read(installation: Path) -> None:
    (installation / COMPILED).unlink()
    assert facts(loaded()) == facts(parse_registry(SOURCE))


def test_a_registry_with_faults_is_not_compiled() -> None:
    with pytest.raises(RegistryError):
        compile_registry(SOURCE.replace('element = "BF16"', 'element = "BF17"', 1))


def test_a_wheel_has_both_forms_of_one_text(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        source = archive.read("tensorhub_contracts/registry.toml").decode()
        compiled = read_compiled(archive.read(f"tensorhub_contracts/{COMPILED}"), source)
    assert compiled is not None
    assert compiled.source == SOURCE
