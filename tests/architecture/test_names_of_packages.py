"""The framework knows no package of ours beside itself: not by an import, and not by a name in a string."""

from __future__ import annotations

from pathlib import Path

import pytest

FRAMEWORK = Path(__file__).parents[2] / "tensorhub_contracts"
OTHERS = ("tensorhub_decoders", "tensorhub_cuda")


def naming(folder: Path) -> list[str]:
    """Return each file and line below a folder that names another package."""
    return [
        f"{path.relative_to(folder)}:{number}"
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".py", ".toml")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if any(name in line for name in OTHERS)
    ]


def test_no_string_names_another_package() -> None:
    assert naming(FRAMEWORK) == []


@pytest.mark.parametrize("line", [f"import {OTHERS[0]}", f'"{OTHERS[1]}.launch"', f"# see {OTHERS[0]}"])
def test_a_name_would_be_seen(tmp_path: Path, line: str) -> None:
    (tmp_path / "module.py").write_text(f"first = 1\n{line}\n")
    assert naming(tmp_path) == ["module.py:2"]
