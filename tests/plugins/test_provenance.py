"""What is ours is known by its recorded files: a name is anybody's to take, and so is a folder earlier on the import path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.environments import Installer, Site, metadata_folder, project

SPOOF = "[tensorhub.decoders]\nspoof = acme_spoof\n[tensorhub.commands]\nspoofed = acme_spoof:command\n"


@pytest.mark.parametrize("name", ["tensorhub-contracts", "Tensorhub_Contracts", "tensorhub.contracts"])
@pytest.mark.parametrize("recorded", [None, "acme_spoof.py,,\n", "tensorhub_contracts/__init__.py,,\nacme_spoof.py,,\n"])
def test_a_distribution_of_our_name_is_foreign(install: Installer, tmp_path: Path, name: str, recorded: str | None) -> None:
    place = metadata_folder(tmp_path / "other", name, "9.9", SPOOF)
    (tmp_path / "other" / "acme_spoof.py").write_text("print('SPOOF STDOUT')\n")
    if recorded:
        (place / "RECORD").write_text(recorded)
    site = install().and_folder(tmp_path / "other")
    done = site.tensorhub("plugins", "--output", "json")
    assert done.code == 0
    named = {each["name"]: each for each in json.loads(done.out)["plugins"]}
    assert named["spoof"]["shipped"] is False
    assert all(each["shipped"] for key, each in named.items() if key != "spoof")
    assert "SPOOF STDOUT" in done.err
    assert site.by_name(selection="plain")["spoof"]["state"] == "blocked"  # an allow-list keeps it out


def shadowed(site: Site, folder: Path) -> Site:
    """Return a site with a package of the decoders' name before all others."""
    (folder / "tensorhub_decoders").mkdir(parents=True)
    (folder / "tensorhub_decoders" / "__init__.py").write_text("import os\nos.write(1, b'SHADOW')\n")
    for module in ("plain", "cozy_fp8_rowwise", "cozy_fp8_storage", "hf_fp8_blockwise"):
        (folder / "tensorhub_decoders" / f"{module}.py").write_text("raise AssertionError\n")
    return site.and_folder(folder)


def test_a_package_that_shadows_the_shipped_decoders_is_never_ours(install: Installer, tmp_path: Path) -> None:
    site = shadowed(install(), tmp_path / "shadow")
    named = site.by_name()
    for name in ("plain", "cozy-fp8-rowwise", "cozy-fp8-storage", "hf-fp8-blockwise"):
        assert named[name]["state"] == "broken"
        found = f"tensorhub_decoders is found at {tmp_path / 'shadow' / 'tensorhub_decoders' / '__init__.py'}, which is not a file of"
        assert found in named[name]["reason"]
    for arguments in (("lanes", "--strict"), ("doctor",), ("plugins", "--strict")):
        done = site.tensorhub(*arguments)
        assert done.code == 3, (arguments, done.err)
        assert "SHADOW" not in done.out + done.err  # it is not even imported
    assert site.lanes(code=1)["lanes"] == []  # whoever asks for lanes gets none with our name on it
    assert install().tensorhub("lanes", "--strict").code in (0, 1)


def test_a_copy_of_our_decoders_on_the_path_is_not_ours_either(install: Installer, tmp_path: Path) -> None:
    import shutil

    site = install()
    shutil.copytree(site.environment.site_packages / "tensorhub_decoders", tmp_path / "copy" / "tensorhub_decoders")
    assert site.and_folder(tmp_path / "copy").by_name()["plain"]["state"] == "broken"
    assert site.by_name()["plain"]["state"] == "loaded"


@pytest.mark.parametrize("name", ["produce", "decode", "kernels", "doctor"])
def test_a_shipped_command_keeps_its_name(install: Installer, name: str) -> None:
    text = "import click\n@click.command()\ndef command():\n    click.echo('TAKEN')\n"
    site = install(project(f"acme-{name}", {name: "acme_taken:command"}, {"acme_taken.py": text}, group="tensorhub.commands"))
    done = site.tensorhub(name, "--help")
    assert "TAKEN" not in done.out
    assert done.out == install().tensorhub(name, "--help").out
    assert done.code == install().tensorhub(name, "--help").code
    listed = site.tensorhub("--help", env={"COLUMNS": "300"}).out.partition("Not in use:")[2]
    assert f"{name} (acme-{name} 1.0), entry point acme_taken:command: tensorhub has a command of this name" in " ".join(listed.split())
