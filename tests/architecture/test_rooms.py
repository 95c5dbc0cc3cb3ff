"""Each room keeps its rule: who uses msgspec, who imports foreign code, who opens files, and what public facts are."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

import tensorhub_contracts
from tensorhub_contracts import DecodedTensor

ROOT = Path(__file__).parents[2]
PACKAGES = ("tensorhub_contracts", "decoders/tensorhub_decoders", "cuda/tensorhub_cuda")

#: What reads a file, called as a function or as a method of a path, a module or a resource.
READS = {"open", "fdopen", "pread", "preadv", "readv", "read_bytes", "read_text", "mmap", "memmap", "fromfile", "safe_open", "load_file"}
READS |= {"open_regular", "open_file", "read_json_file"}  # which wait for no pipe

#: What runs code by a name that is known at run time alone.
RUNS = {"import_module", "__import__", "run_module", "run_path", "exec_module", "load_module"}
RUNS_AS_FUNCTION = {"exec", "eval"}  # as methods they are a model's and others'

#: Who else may call what reads files, and which files these are. None of them judges a checkpoint.
READERS = {
    "tensorhub_contracts/compiled.py": "the package's own registry and list of codes",
    "tensorhub_contracts/plugins/discovery.py": "metadata of installed distributions",
    "tensorhub_contracts/plugins/shipped_only.py": "metadata of installed distributions",
    "tensorhub_contracts/lanes/requirements.py": "what the installed torch says of itself",
    "tensorhub_contracts/commands/__init__.py": "the null device, for a reader that has gone",
    "tensorhub_contracts/commands/ending.py": "the null device, for output that cannot be written",
    "tensorhub_contracts/commands/document_files.py": "the documents that the user names",
    "decoders/tensorhub_decoders/reading.py": "payload of a proved checkpoint, whose header is compared with the proved one",
    "decoders/tensorhub_decoders/upcast/buffers.py": "no file: anonymous memory",
    "decoders/tensorhub_decoders/converting/shard_writing.py": "what it writes",
    "decoders/tensorhub_decoders/converting/resume.py": "the state of a conversion, and what it wrote before",
    "decoders/tensorhub_decoders/converting/convert.py": "files of a proved checkpoint that are copied byte for byte",
    "decoders/tensorhub_decoders/converting/companion_files.py": "small files beside the weights, which are copied",
    "cuda/tensorhub_cuda/catalog.py": "the package's own kernels",
    "cuda/tensorhub_cuda/environment/look.py": "the driver's and torch's version files",
    "cuda/tensorhub_cuda/nvrtc/cubin.py": "cubins of the cache",
}

#: Who else may import by a name that is known at run time alone: the beginning of the path, and why.
IMPORTERS = {
    "tensorhub_contracts/testing/": "the library of a tensor that a decoder gave, which is imported already",
}

MOST_BYTES = 13_312
MOST_MODULES = 20


def modules() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def where(found: Callable[[ast.Module], Iterator[int]]) -> dict[str, list[int]]:
    """Return the lines that a search finds, by module."""
    lines = {place(path): sorted(found(ast.parse(path.read_text("utf-8")))) for path in modules()}
    return {path: each for path, each in lines.items() if each}


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def imports_of_msgspec(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        if any(name.partition(".")[0] == "msgspec" for name in names):
            yield node.lineno


def msgspec_structs(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("Struct", "defstruct") and ast.unparse(node.value) == "msgspec":
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "msgspec" and {each.name for each in node.names} & {"Struct", "defstruct"}:
            yield node.lineno


def foreign_imports(tree: ast.Module) -> Iterator[int]:
    """Yield the calls that run code whose name is not written here: neither a constant nor a module of the package itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if called(node) == "load" and not node.args and not node.keywords:  # EntryPoint.load()
                yield node.lineno
            if called(node) in RUNS and not (node.args and _is_known(node.args[0])):
                yield node.lineno
            if isinstance(node.func, ast.Name) and node.func.id in RUNS_AS_FUNCTION:
                yield node.lineno


def _is_known(name: ast.expr) -> bool:
    """Whether a module's name is a constant, or an f-string that begins with `__name__` or with our own package."""
    begin = name.values[0] if isinstance(name, ast.JoinedStr) else name
    if isinstance(begin, ast.FormattedValue):
        return ast.unparse(begin.value) == "__name__"
    constant = isinstance(begin, ast.Constant) and isinstance(begin.value, str)
    return constant and (begin is name or ast.unparse(begin).startswith("'tensorhub_contracts."))


def file_reads(tree: ast.Module) -> Iterator[int]:
    return (node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node) in READS)


def test_msgspec_is_used_in_two_rooms() -> None:
    users = [path for path in where(imports_of_msgspec) if not path.startswith("tensorhub_contracts/checkpoints/")]
    assert users == ["tensorhub_contracts/documents.py"]


def test_structs_are_what_headers_become() -> None:
    users = list(where(msgspec_structs))
    assert users
    assert all(path.startswith("tensorhub_contracts/checkpoints/") for path in users), users


def test_only_plugins_imports_foreign_code() -> None:
    users = where(foreign_imports)
    assert "tensorhub_contracts/plugins/loader.py" in users
    others = [path for path in users if not path.startswith("tensorhub_contracts/plugins/")]
    assert [path for path in others if not path.startswith(tuple(IMPORTERS))] == []
    assert [begin for begin in IMPORTERS if not any(path.startswith(begin) for path in others)] == []


def test_the_framework_imports_no_library_by_name() -> None:
    """A constant name is known, but in the framework it is one of its own."""
    names = [
        ast.unparse(node.args[0])
        for path in (ROOT / "tensorhub_contracts").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and called(node) in RUNS and node.args and isinstance(node.args[0], ast.Constant)
    ]
    assert [name for name in names if not name.startswith("'tensorhub_contracts.")] == []


def test_only_checkpoints_opens_files_of_checkpoints() -> None:
    users = [path for path in where(file_reads) if not path.startswith("tensorhub_contracts/checkpoints/")]
    assert users == sorted(READERS)


def test_only_the_hub_answers_422() -> None:
    def numbers(tree: ast.Module) -> Iterator[int]:
        return (node.lineno for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == 422)

    assert list(where(numbers)) == ["tensorhub_contracts/hub/problem.py"]


@pytest.mark.parametrize("name", tensorhub_contracts.__all__)
def test_public_facts_are_attrs_classes(name: str) -> None:
    public = getattr(tensorhub_contracts, name)
    if not inspect.isclass(public) or issubclass(public, Exception) or getattr(public, "_is_protocol", False):
        return
    if public is DecodedTensor:
        assert issubclass(public, tuple), "a plugin may yield plain tuples"
    else:
        assert attrs.has(public)


def test_modules_are_small() -> None:
    sizes = {place(path): path.stat().st_size for path in modules()}
    assert {path: size for path, size in sizes.items() if size > MOST_BYTES} == {}


def test_folders_have_few_modules() -> None:
    folders = [ROOT / folder for folder in (*PACKAGES, "tests", "tools", "benchmarks")]
    counts: dict[str, int] = {}
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        counts[place(path.parent)] = counts.get(place(path.parent), 0) + 1
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


@pytest.mark.parametrize(
    ("search", "line"),
    [
        (imports_of_msgspec, "import msgspec.json"),
        (imports_of_msgspec, "def f():\n    from msgspec import convert"),
        (msgspec_structs, "class A(msgspec.Struct): ..."),
        (msgspec_structs, "from msgspec import Struct"),
        (foreign_imports, "importlib.import_module(name)"),
        (foreign_imports, "__import__(f'{package}.x')"),
        (foreign_imports, "EntryPoint(a, b, c).load()"),
        (foreign_imports, "import_module(f'tensorhub_contracts_{x}')"),
        (foreign_imports, "exec('import numpy')"),
        (file_reads, "path.open('rb')"),
        (file_reads, "os.pread(1, 2, 3)"),
        (file_reads, "mmap.mmap(1, 2)"),
    ],
    ids=lambda value: value.partition("\n")[0] if isinstance(value, str) else value.__name__,
)
def test_a_breach_would_be_seen(search: Callable[[ast.Module], Iterator[int]], line: str) -> None:
    assert list(search(ast.parse(line)))


@pytest.mark.parametrize(
    ("search", "line"),
    [
        (imports_of_msgspec, "import json, msgspecs"),
        (msgspec_structs, "struct.Struct('<Q')"),
        (foreign_imports, "importlib.import_module(f'{__name__}.{table[name]}')"),
        (foreign_imports, "importlib.import_module(f'tensorhub_contracts.{module}')"),
        (foreign_imports, "importlib.import_module('cuda.core')"),
        (foreign_imports, "tomllib.load(file)"),
        (foreign_imports, "model.eval()"),
        (file_reads, "reopened(path)"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_what_is_allowed_is_not_found(search: Callable[[ast.Module], Iterator[int]], line: str) -> None:
    assert not list(search(ast.parse(line)))
