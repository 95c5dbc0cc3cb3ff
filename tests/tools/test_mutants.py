"""The mutation tester: which changes it makes, that it finds a hole of the tests, and that it leaves the tree alone."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mutants import workbench
from mutants.__main__ import main
from mutants.choosing import chosen_tests
from mutants.finding import mutants_of
from mutants.sampling import sampled
from mutants.tree import TreeError, prove_imported_from

CHANGES = [
    ("a = b == c", "comparison", {"(b != c)"}),
    ("a = b < c", "comparison", {"(b <= c)"}),
    ("a = b not in c", "comparison", {"(b in c)"}),
    ("a = b is c", "comparison", {"(b is not c)"}),
    ("a = 1 < b < 3", "comparison", {"(1 <= b < 3)", "(1 < b <= 3)"}),
    ("a = b and c", "and-or", {"(b or c)"}),
    ("a = b or c or d", "operand", {"(c or d)", "(b or d)", "(b or c)"}),
    ("a = not b", "not", {"b"}),
    ("a = -b", "sign", {"b"}),
    ("a = b + c", "operator", {"(b - c)"}),
    ("if a:\n    b()", "condition", {"True", "False"}),
    ("while a:\n    b()", "condition", {"False"}),
    ("a = b if c else d", "condition", {"True", "False"}),
    ("a = 5", "constant", {"6", "4"}),
    ("a = 'b'", "constant", {"'Xb'"}),
    ("a = b'c'", "constant", {"b'Xc'"}),
    ("a = True", "constant", {"False"}),
    ("for a in b:\n    continue", "jump", {"break", "pass"}),
    ("for a in b:\n    break", "jump", {"continue", "pass"}),
    ("def a():\n    return b", "return", {"return None"}),
    ("a.b = c", "dropped", {"pass"}),
    ("a += c", "dropped", {"pass"}),
    ("a(b)", "dropped", {"pass"}),
    ("raise A", "dropped", {"pass"}),
    ("if a:\n    b()\nelse:\n    c()\n    d()", "else", {"pass"}),
    ("if a:\n    b()\nelif e:\n    c()", "else", {"else: pass"}),
    ("try:\n    a()\nfinally:\n    b()", "finally", {"pass"}),
    ("a(b=c, d=e)", "keyword", {"a(d=e)", "a(b=c)"}),
    ("a = sorted(b, key=c)", "key", {"sorted(b)"}),
    ("a = sorted(b, key=c)", "sorted", {"list(b)"}),
    ("a = any(b)", "function", {"all(b)"}),
    ("a = b[c:d]", "slice", {"b[c + 1:d]", "b[:d]", "b[c:d + 1]", "b[c:]"}),
    ("a = b[:c]", "slice", {"b[1:c]", "b[:c + 1]", "b[:]"}),
    ("try:\n    a()\nexcept (B, C):\n    d()", "exception", {"((C,))", "((B,))"}),
    ("a = [b for b in c if d if e]", "filter", {"([b for b in c if e])", "([b for b in c if d])"}),
    ("def a(b=None):\n    pass", "default", {"object()"}),
    ("a = (b, c)", "element", {"((c,))", "((b,))"}),
    ("a = {b: c, d: e}", "element", {"({d: e})", "({b: c})"}),
]


@pytest.mark.parametrize(("source", "kind", "expected"), CHANGES)
def test_a_kind_of_change(source: str, kind: str, expected: set[str]) -> None:
    assert {each.mutated for each in mutants_of("a.py", source.encode()) if each.kind == kind} == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring, 5."""',
        "import a.b as c",
        "a: Literal[5]",
        "A = Mapping[str, 'B']",
        "A = TypeVar('A', bound=int)",
        "if TYPE_CHECKING:\n    a = 5",
        "if __name__ == '__main__':\n    main()",
        "a = f'{b + 5}'",
        "a = 'two words'",
        "remedy = 'Repair'",
        "assert a == 5",
    ],
)
def test_what_no_test_is_to_see_is_not_changed(source: str) -> None:
    assert mutants_of("a.py", source.encode()) == []


def test_words_for_people_are_not_changed() -> None:
    source = b"def a(b):\n    raise ValueError('five')\n\n\na(found='five', code='five')"
    assert [each.original for each in mutants_of("a.py", source) if each.kind == "constant"] == ["'five'"]


def test_a_mutant_says_where_it_is_and_differs_there_alone() -> None:
    source = 'a = "Ä", 1 == b  # 1\nc = 2\n'
    (mutant,) = (each for each in mutants_of("a.py", source.encode()) if each.kind == "comparison")
    assert (mutant.place, mutant.original, mutant.mutated) == ("a.py:1", "1 == b", "(1 != b)")
    assert (mutant.before, mutant.after) == ('a = "Ä", 1 == b # 1', 'a = "Ä", (1 != b) # 1')
    assert mutant.source.decode() == 'a = "Ä", (1 != b)  # 1\nc = 2\n'


def test_the_lines_of_a_mutant_are_those_of_its_statement() -> None:
    source = b"if (\n    a\n    and b\n):\n    c()\nelse:\n    d(\n        1,\n    )\n"
    lines = {each.kind: each.lines for each in mutants_of("a.py", source)}
    assert (lines["and-or"], lines["constant"], lines["else"]) == (range(1, 5), range(7, 10), range(7, 10))


def test_a_sample_is_the_same_for_a_seed_and_even_over_modules_and_kinds() -> None:
    sources = {"a.py": b"x = [a == b, 'c', 'd', 'e', 'f', 'g', 'h', not i]\n", "b.py": b"y = [" + b"'z', " * 50 + b"k and l]\n"}
    every = [mutant for name, source in sources.items() for mutant in mutants_of(name, source)]
    taken = sampled(every, 10, 3)
    assert taken == sampled(every, 10, 3) != sampled(every, 10, 4)
    assert Counter(each.module for each in taken) == {"a.py": 5, "b.py": 5}
    assert {"comparison", "and-or", "not", "constant", "element"} <= {each.kind for each in taken}
    assert sorted(map(repr, sampled(every, 0, 3))) == sorted(map(repr, every))


def test_the_cheapest_tests_run_and_those_of_a_file_together() -> None:
    seconds = {"a.py::one": 3.0, "a.py::two": 1.0, "b.py::one": 2.0, "c.py::one": 9.0}
    assert list(chosen_tests(seconds, 7)) == ["b.py::one", "a.py::two", "a.py::one"]
    assert list(chosen_tests({"c.py::one": 9.0}, 7)) == ["c.py::one"]


# A small project.

MODULE = '''\
"""Sums."""

LIMIT = 100


def add(a, b):
    if a > LIMIT:
        raise ValueError("too much")
    return a + b


def shared(a):
    return a * 3


def elsewhere(a):
    print(a * 5)


def count(a):
    while a < 3:
        a += 1
    return a


def nobody(a):
    return a - 9


def installed(a):
    print(a + 7)
'''
TESTS = """\
import pathlib
import shutil
import subprocess
import sys
import venv

import pytest
import sums

@pytest.fixture(scope="module")
def tripled():
    return sums.shared(2)


def test_that_needs_no_value(tripled):
    pass


def test_shared(tripled):
    assert tripled == 6


def test_add():
    assert sums.add(2, 3) == 5


def test_too_much():
    with pytest.raises(ValueError):
        sums.add(1000, 3)


def test_elsewhere():
    done = subprocess.run([sys.executable, "-c", "import sums; sums.elsewhere(2)"], capture_output=True)
    assert done.stdout == b"10\\n"


def test_count():
    assert sums.count(0) == 3


def test_installed(tmp_path):
    venv.create(tmp_path, symlinks=True)
    (packages,) = tmp_path.glob("lib/python3.*/site-packages")
    shutil.copy(pathlib.Path(__file__).parents[1] / "sums.py", packages)
    command = [tmp_path / "bin" / "python", "-I", "-c", "import sums; sums.installed(2)"]
    assert subprocess.run(command, capture_output=True).stdout == b"9\\n"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(workbench, "_START", 4.0)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # which takes most of the time of so small a run
    root = tmp_path / "project"
    (root / "tests").mkdir(parents=True)
    (root / "sums.py").write_text(MODULE)
    (root / "tests" / "test_sums.py").write_text(TESTS)
    return root


def content(root: Path) -> dict[str, str]:
    files = (path for path in root.rglob("*") if path.is_file() and ".mutants" not in path.parts)
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def outcome(root: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run the tester on the project; return its exit status, and its mutants by line and text."""
    report = root.parent / "report.json"
    status = main(["sums.py", "--root", str(root), "--count", "0", "--json", str(report), *arguments])
    mutants = json.loads(report.read_text())["mutants"]
    return status, {f"{each['line']}: {each['mutated']}": each for each in mutants}


def test_a_hole_is_found_what_is_tested_is_killed_and_the_tree_is_as_it_was(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(project)
    status, mutants = outcome(project)
    assert status == 1
    assert content(project) == before
    by = {text: (each["status"], each["by"].rpartition("::")[2]) for text, each in mutants.items()}
    assert by["9: (a - b)"] == ("killed", "test_add")
    assert by["8: pass"] == ("killed", "test_too_much")
    assert by["13: (a // 3)"] == ("killed", "test_shared"), "what a fixture of the module executes"
    assert by["17: 6"] == ("killed", "test_elsewhere"), "what another process executes"
    assert by["21: (a <= 3)"] == ("killed", "test_count")
    assert by["22: pass"] == ("timeout", "the limit of time")
    assert by["7: (a >= LIMIT)"] == by["3: 101"] == ("survived", ""), "what is executed on import"
    assert by["27: (a + 9)"] == ("uncovered", "")
    assert by["31: (a - 7)"] == ("killed", "test_installed"), "what an installation in another virtual environment executes"
    printed = capsys.readouterr().out
    assert "SURVIVED   sums.py:7:8 comparison: 2 tests," in printed
    assert "    - if a > LIMIT:\n    + if (a >= LIMIT):\n" in printed
    assert "not executed: sums.py:27" in printed
    # The recording serves again, and what it is told is equivalent is not run.
    holes = [each for each in mutants.values() if each["status"] in ("survived", "uncovered")]
    entries = [{"module": "sums.py", "original": each["before"], "mutated": each["after"], "reason": "x"} for each in holes]
    entries.append({"module": "sums.py", "original": "return a - 8", "mutated": "return a", "reason": "x"})
    listed = project.parent / "equivalent.toml"
    listed.write_text("".join("[[equivalent]]\n" + "".join(f"{key} = '{text}'\n" for key, text in entry.items()) for entry in entries))
    status, again = outcome(project, "--equivalent", str(listed))
    assert status == 0
    assert {each["status"] for text, each in again.items() if text in ("7: (a >= LIMIT)", "27: (a + 9)")} == {"equivalent"}
    printed = capsys.readouterr().out
    assert "recording" not in printed
    assert "stale in equivalent.toml: sums.py: return a - 8" in printed


def test_a_test_that_fails_alone_on_the_unchanged_tree_kills_nothing(project: Path) -> None:
    (project / "sums.py").write_text("def five():\n    return 5\n")
    (project / "tests" / "test_sums.py").write_text("""\
import sums

seen = []


def test_first():
    seen.append(1)


def test_second():
    assert seen
    assert sums.five() != 7
""")
    status, mutants = outcome(project)
    assert status == 1
    assert {each["status"] for each in mutants.values()} == {"survived"}


def test_a_module_that_is_imported_from_elsewhere_is_not_tested(tmp_path: Path) -> None:
    (tmp_path / "sys.py").write_text("a = 1\n")
    with pytest.raises(TreeError, match="not from the copy"):
        prove_imported_from(tmp_path, tmp_path, ["sys.py"])


@pytest.mark.parametrize("arguments", [["nowhere.py"], ["sums.py", "--tests", "tests/nowhere.py"]])
def test_what_is_not_there_is_said_and_the_status_is_2(project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main([*arguments, "--root", str(project)]) == 2
    assert "nowhere.py" in capsys.readouterr().err
