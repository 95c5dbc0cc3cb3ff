"""The wheel holds the registry and the codes compiled, beside the TOML that they were made from, and an installation reads those."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tensorhub_contracts.compiled import is_intact
from tensorhub_contracts.refusal_codes import compile_codes
from tensorhub_contracts.registry.compiled import compile_registry
from tests.support.environments import ROOT, Environment, Site

READ = """
import sys
from tensorhub_contracts import installed_registry
from tensorhub_contracts.refusal_codes import explanations
print(len(installed_registry().known_digests) == len(installed_registry().contracts), len(explanations()) > 50, "tomllib" in sys.modules)
"""


@pytest.mark.parametrize(
    ("name", "source", "compiling"),
    [
        ("registry", ROOT / "registry.toml", compile_registry),
        ("refusal_codes", ROOT / "tensorhub_contracts" / "refusal_codes.toml", compile_codes),
    ],
)
def test_the_wheels_json_is_that_of_its_toml(our_wheel: Path, name: str, source: Path, compiling: object) -> None:
    with zipfile.ZipFile(our_wheel) as wheel:
        held = wheel.namelist()
        toml, made = (wheel.read(f"tensorhub_contracts/{name}.{ending}") for ending in ("toml", "json"))
    assert held.count(f"tensorhub_contracts/{name}.json") == 1
    assert toml == source.read_bytes()
    assert is_intact(made)
    assert callable(compiling)
    assert made == compiling(toml.decode()).encode()


def test_an_installation_parses_no_toml(base: Environment) -> None:
    done = Site(base).python(READ)
    assert (done.code, done.out) == (0, "True True False\n"), done.err
