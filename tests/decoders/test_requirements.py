"""Requirements of decoders: whether modules are there, found out without importing any."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path

import pytest

from tensorhub_contracts.lanes.requirements import missing_requirements

#: A module that leaves no doubt about whether it was imported.
EXPLODES = "raise SystemExit('this module was imported')\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path, with a module, a package, a namespace that holds a package, and one that holds nothing."""
    (tmp_path / "th_module.py").write_text(EXPLODES)
    for folder in ("th_package/inner", "th_namespace/part", "th_leftover/__pycache__", "th_package/leftover"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("th_package/__init__.py", "th_package/child.py", "th_package/inner/__init__.py", "th_package/inner/deep.py"):
        (tmp_path / file).write_text(EXPLODES)
    for file in ("th_namespace/part/__init__.py", "th_namespace/part/deep.py", "th_namespace/alone.py"):
        (tmp_path / file).write_text(EXPLODES)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    "name",
    [
        "th_module", "th_package", "th_package.child", "th_package.inner", "th_package.inner.deep",
        "th_namespace.part", "th_namespace.part.deep", "th_namespace.alone",
        "sys", "zipimport", "json", "json.tool", "os.path", "importlib.machinery", "tensorhub_contracts.registry.registry",
    ],
)  # fmt: skip
def test_what_can_be_imported_is_there_and_is_not_imported(name: str) -> None:
    before = set(sys.modules)
    assert missing_requirements([name]) == ()
    assert set(sys.modules) == before
    assert not any(each.startswith("th_") for each in before)


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    "name",
    [
        "th_absent", "th_absent.child", "th_package.absent", "th_package.absent.child", "th_package.inner.absent",
        "th_package.child.deeper", "th_module.child", "th_module.th_package", "th_namespace.absent",
        "th_namespace.part.absent", "sys.path", "sys.json", "json.absent", "os.path.absent",
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_missing_by_its_whole_name(name: str) -> None:
    before = set(sys.modules)
    assert missing_requirements([name]) == (name,)
    assert set(sys.modules) == before


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("name", ["th_leftover", "th_namespace", "th_package.leftover"])
def test_a_folder_without_code_is_missing(name: str) -> None:
    """An uninstalled package leaves its folder behind, and an import of that folder would succeed."""
    assert missing_requirements([name]) == (name,)


@pytest.mark.usefixtures("site")
def test_only_what_is_missing_is_named_in_the_order_of_asking() -> None:
    asked = ("th_b_absent", "json", "th_package.child", "th_a_absent", "th_leftover", "sys")
    assert missing_requirements(asked) == ("th_b_absent", "th_a_absent", "th_leftover")
    assert missing_requirements(iter(asked)) == ("th_b_absent", "th_a_absent", "th_leftover")
    assert missing_requirements(()) == ()


def test_the_path_of_a_package_leads_to_its_children(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the same name beside the package is not the package's child."""
    assert missing_requirements(["th_package.th_module"]) == ("th_package.th_module",)
    (site / "th_package" / "th_module.py").write_text(EXPLODES)
    monkeypatch.syspath_prepend(site)  # forgets what finders remember of folders
    assert missing_requirements(["th_package.th_module"]) == ()


def test_a_module_whose_import_is_forbidden_is_missing(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (site / "th_module.py").exists()
    monkeypatch.setitem(sys.modules, "th_module", None)
    monkeypatch.setitem(sys.modules, "th_package.child", None)
    assert missing_requirements(["th_module", "th_package", "th_package.child"]) == ("th_module", "th_package.child")
    with pytest.raises(ImportError):
        __import__("th_module")


def test_a_module_that_was_made_by_hand_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "th_made", type(sys)("th_made"))
    assert missing_requirements(["th_made"]) == ()


class Finding:
    """A finder of someone else's, as editable installs bring them: it answers for one name."""

    def __init__(self, spec: ModuleSpec) -> None:
        self.spec = spec

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        return self.spec if name == self.spec.name else None


@pytest.mark.parametrize(
    ("loader", "origin", "package", "there"),
    [
        (True, "made.py", False, True),
        (True, None, False, True),
        (True, "made/__init__.py", True, True),
        (True, None, True, False),
        (False, None, True, False),
        (False, "made.py", False, False),
    ],
    ids=["module", "module from nowhere", "package", "namespace with a loader", "namespace", "nothing that loads"],
)
def test_a_foreign_finder_is_asked_and_its_namespaces_are_not_code(
    loader: bool, origin: str | None, package: bool, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ModuleSpec("th_made", SourceFileLoader("th_made", "made.py") if loader else None, origin=origin, is_package=package)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finding(spec)])
    assert missing_requirements(["th_made"]) == (() if there else ("th_made",))


class Raising:
    """A finder of someone else's that fails for every module whose name begins with `th_`."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked: list[str] = []

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        self.asked.append(name)
        if name.startswith("th_"):
            raise self.error


@pytest.mark.parametrize("error", [ImportError("no"), RuntimeError("no"), KeyError("no"), RecursionError("no")], ids=repr)
def test_where_a_finder_raises_nothing_is_found_as_an_import_would_not(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    finder = Raising(error)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    monkeypatch.delitem(sys.modules, "json.tool", raising=False)
    assert missing_requirements(["th_absent", "th_absent.child", "json.tool"]) == ("th_absent", "th_absent.child")
    assert finder.asked == ["th_absent", "th_absent", "json", "json.tool"]


def test_a_finder_of_the_old_kind_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [object(), *sys.meta_path])
    assert missing_requirements(["th_absent"]) == ("th_absent",)
    monkeypatch.delitem(sys.modules, "json.tool", raising=False)
    assert missing_requirements(["json.tool"]) == ()


def test_without_any_finder_only_imported_modules_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "json.tool", raising=False)
    monkeypatch.setattr(sys, "meta_path", [])
    assert missing_requirements(["sys", "pytest", "json.tool"]) == ("json.tool",)
