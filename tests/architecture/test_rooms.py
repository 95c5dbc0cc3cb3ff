"""Rules that rooms keep: who imports msgspec, what facts are, how large modules and folders are."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import attrs

import tensorhub_contracts

ROOT = Path(__file__).parents[2]
FRAMEWORK, DECODERS, KERNELS = (ROOT / name for name in ("tensorhub_contracts", "decoders/tensorhub_decoders", "cuda/tensorhub_cuda"))
LARGEST_MODULE, MOST_MODULES = 13 * 1024, 20

#: What is exported and is no fact: functions, errors, and what plugins may give as a plain tuple.
NO_FACTS = {"DecodedTensor"}


def modules(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Return the top-level names of what a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_msgspec_decodes_bytes_and_is_the_machinery_of_documents() -> None:
    using = [path for path in modules(FRAMEWORK, DECODERS, KERNELS) if "msgspec" in imports(path)]
    assert using
    assert [path for path in using if path != FRAMEWORK / "documents.py" and path.parent != FRAMEWORK / "checkpoints"] == []


def test_structs_are_what_header_entries_become_and_nothing_else() -> None:
    defining = {
        node.name
        for path in modules(FRAMEWORK, DECODERS, KERNELS)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and any("Struct" in ast.unparse(base) for base in node.bases)
    }
    assert defining == {"TensorEntry", "Geometry", "Header"}


def test_every_public_fact_is_an_attrs_class() -> None:
    exported = [getattr(tensorhub_contracts, name) for name in tensorhub_contracts.__all__ if name not in NO_FACTS]
    facts = [each for each in exported if inspect.isclass(each) and not issubclass(each, BaseException)]
    assert len(facts) > 10
    assert [fact.__name__ for fact in facts if not attrs.has(fact)] == []


def test_no_module_is_too_large_to_read() -> None:
    assert [f"{path.relative_to(ROOT)}" for path in modules(FRAMEWORK, DECODERS, KERNELS) if path.stat().st_size > LARGEST_MODULE] == []


def test_no_folder_holds_too_many_modules() -> None:
    counts: dict[Path, int] = {}
    for path in modules(FRAMEWORK, DECODERS, KERNELS, ROOT / "tests", ROOT / "tools", ROOT / "benchmarks"):
        counts[path.parent] = counts.get(path.parent, 0) + 1
    assert {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_only_the_hub_knows_its_status() -> None:
    naming = [path for path in modules(FRAMEWORK) if "Literal[422]" in path.read_text("utf-8") or "status=422" in path.read_text("utf-8")]
    assert naming
    assert {path.parent for path in naming} == {FRAMEWORK / "hub"}


#: Where foreign code is imported: a module that metadata names.
FOREIGN = {FRAMEWORK / "plugins" / "loader.py"}


def test_only_plugins_import_what_metadata_names() -> None:
    loading = {
        path
        for path in modules(FRAMEWORK)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "EntryPoint"
    }
    assert loading == FOREIGN


def calls(path: Path) -> set[str]:
    """Return what a module calls, as it is written."""
    tree = ast.parse(path.read_text("utf-8"))
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


#: Who opens files and is not `checkpoints`: what they read is no checkpoint's.
OPENING = {
    "registry/registry.py": "the registry that the distribution ships",
    "refusal_codes.py": "the list of codes that the distribution ships",
    "plugins/shipped_only.py": "metadata of distributions",
    "plugins/discovery.py": "metadata of distributions",
    "commands/__init__.py": "the null device, where a reader has gone",
    "commands/lanes.py": "a record that the user names",
    "commands/satisfies.py": "records that the user names",
}


def test_only_checkpoints_open_files_of_checkpoints() -> None:
    opening = {
        str(path.relative_to(FRAMEWORK))
        for path in modules(FRAMEWORK)
        if any(call in ("open", "os.open", "os.pread", "mmap.mmap") or call.endswith((".read_bytes", ".read_text")) for call in calls(path))
        and path.parent not in (FRAMEWORK / "checkpoints", FRAMEWORK / "testing")
    }
    assert opening <= OPENING.keys(), opening - OPENING.keys()
