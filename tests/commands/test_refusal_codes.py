"""The list of refusal codes is closed: the source uses exactly the codes that are explained and documented."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorhub_decoders

import tensorhub_contracts
from tensorhub_contracts.refusal_codes import explanations

PACKAGE = Path(tensorhub_contracts.__file__).parent
ROOT = PACKAGE.parent
DECODERS = Path(tensorhub_decoders.__file__).parent
CODE = re.compile(r"[a-z]+(-[a-z0-9]+)+")
MODULES = {path: ast.parse(path.read_text("utf-8")) for folder in (PACKAGE, DECODERS) for path in sorted(folder.rglob("*.py"))}
FUNCTIONS = {node.name: node for tree in MODULES.values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def takers() -> dict[tuple[Path | None, str], int]:
    """Return what can be called with a `code`, and where it stands among the arguments; a private name counts in its module alone.

    A code of a refusal is a `str`: bytes have numbers, and why a lane is left out is a closed list of its own.
    """
    found: dict[tuple[Path | None, str], int] = {}
    for path, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                fields = [each for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]
                named = {ast.unparse(each.target): ast.unparse(each.annotation) for each in fields}
            elif isinstance(node, ast.FunctionDef):
                named = {each.arg: ast.unparse(each.annotation or ast.Constant(None)) for each in node.args.args if each.arg != "self"}
            else:
                continue
            if named.get("code") == "str":
                found[path if node.name.startswith("_") else None, node.name] = list(named).index("code")
    return found


def called(call: ast.Call) -> str:
    """Return the last name of what is called: `refuse` for `self.refuse(...)`."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def literals(node: ast.expr | None, scope: ast.AST, where: str) -> Iterator[str]:
    """Yield every code that an expression can be; fail if it cannot be told from the source."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from literals(node.body, scope, where)
        yield from literals(node.orelse, scope, where)
    elif isinstance(node, ast.Attribute) and node.attr == "code":
        pass  # handed on from another structure with a code, which was judged where it was made
    elif isinstance(node, ast.Name) and isinstance(scope, ast.FunctionDef):
        yield from variable(node.id, scope, where)
    else:
        pytest.fail(f"{where}: no telling which code this is: {ast.unparse(node) if node else 'nothing'}")


def variable(name: str, scope: ast.FunctionDef, where: str) -> Iterator[str]:
    """Yield every code that is bound to a name in a function: by assignment, by unpacking, or from a function's returned tuple."""
    bound = name in [each.arg for each in scope.args.args]  # handed on from a caller, who is judged too
    for node in ast.walk(scope):
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.NamedExpr):
            pairs = [(node.target, node.value)]
        if isinstance(node, ast.For) and isinstance(node.target, ast.Tuple):
            elements = [isinstance(each, ast.Name) and each.id == name for each in node.target.elts]
            if True in elements:  # from tuples that were gathered before: any of this module that begins with a code
                bound = True
                yield from tuples(MODULES[ROOT / where.partition(":")[0]], elements.index(True))
        for target, value in pairs:
            if isinstance(target, ast.Name) and target.id == name:
                bound = True
                yield from literals(value, scope, where)
            elif isinstance(target, ast.Tuple) and any(isinstance(each, ast.Name) and each.id == name for each in target.elts):
                bound = True
                place = [isinstance(each, ast.Name) and each.id == name for each in target.elts].index(True)
                yield from unpacked(value, place, scope, where)
    assert bound, f"{where}: {name} is bound in no way that this test understands"


def tuples(tree: ast.AST, place: int) -> Iterator[str]:
    """Yield what has the form of a code at a place of the tuples written out in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple) and len(node.elts) > place:
            element = node.elts[place]
            if isinstance(element, ast.Constant) and isinstance(element.value, str) and CODE.fullmatch(element.value):
                yield element.value


def unpacked(value: ast.expr, place: int, scope: ast.FunctionDef, where: str) -> Iterator[str]:
    """Yield the codes at a place of a tuple: written out, or returned by a function of this package."""
    if isinstance(value, ast.Tuple):
        yield from literals(value.elts[place], scope, where)
    elif isinstance(value, ast.Call) and called(value) in FUNCTIONS:
        yield from returned(FUNCTIONS[called(value)], place, where)
    elif isinstance(value, ast.Name):  # a variable that holds the tuple
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign | ast.NamedExpr) and isinstance(node.value, ast.Call) and called(node.value) in FUNCTIONS:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(target, ast.Name) and target.id == value.id for target in targets):
                    yield from returned(FUNCTIONS[called(node.value)], place, where)
    else:
        pytest.fail(f"{where}: no telling what is unpacked: {ast.unparse(value)}")


def returned(function: ast.FunctionDef, place: int, where: str) -> Iterator[str]:
    """Yield the codes at a place of the tuples that a function returns."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Return):
            continue
        options = list(choices(node.value))
        for option in options:
            if isinstance(option, ast.Tuple):
                yield from literals(option.elts[place], function, f"{where} < {function.name}")
            elif isinstance(option, ast.Call) and called(option) in FUNCTIONS:
                yield from returned(FUNCTIONS[called(option)], place, where)


def calls(node: ast.AST, scope: ast.AST) -> Iterator[tuple[ast.Call, ast.AST]]:
    """Yield every call with the innermost function around it, in which its names are bound."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, scope
        yield from calls(child, child if isinstance(child, ast.FunctionDef) else scope)


def choices(node: ast.expr | None) -> Iterator[ast.expr]:
    """Yield the branches of a conditional expression, or the expression itself."""
    if isinstance(node, ast.IfExp):
        yield from choices(node.body)
        yield from choices(node.orelse)
    elif node is not None:
        yield node


def codes_in_use() -> dict[str, str]:
    """Return every code that is passed as one, with the place of one use."""
    taking = takers()
    used: dict[str, str] = {}
    for path, tree in MODULES.items():
        for call, scope in calls(tree, tree):
            name = called(call)
            place = taking.get((path, name), taking.get((None, name)))
            if place is None or any(isinstance(argument, ast.Starred) for argument in call.args[: place + 1]):
                continue  # takes no code, or a key made from a structure that has one
            given = next((each.value for each in call.keywords if each.arg == "code"), None)
            argument = given if given is not None else call.args[place] if len(call.args) > place else None
            where = f"{path.relative_to(ROOT)}:{call.lineno}"
            for code in literals(argument, scope, where):
                used.setdefault(code, where)
    return used


USED = codes_in_use()


def test_the_search_finds_the_usual_ways_to_state_a_code() -> None:
    """Teeth of this very test: a literal, a keyword, a variable, a function's result."""
    assert {"scale-missing", "handle-malformed", "index-shard-missing", "scale-grid-transposed", "lane-dtype"} <= set(USED)


def test_every_code_in_use_is_explained() -> None:
    assert not {code: where for code, where in USED.items() if code not in explanations()}


def test_every_explained_code_is_in_use() -> None:
    assert [code for code in explanations() if code not in USED] == []


def test_codes_have_one_form() -> None:
    assert [code for code in {*explanations(), *USED} if not CODE.fullmatch(code)] == []


def test_no_code_stands_twice_in_the_list() -> None:
    text = (PACKAGE / "refusal_codes.toml").read_text("utf-8")
    assert re.findall(r"^\[(.+)\]$", text, re.MULTILINE) == list(tomllib.loads(text)) == list(explanations())


def test_titles_are_unique() -> None:
    titles = [each.title for each in explanations().values()]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("code", explanations())
def test_an_explanation_is_complete(code: str) -> None:
    each = explanations()[code]
    assert each.title[0].isupper()
    assert not each.title.endswith(".")
    for text in (each.meaning, each.remedy):
        assert text[0].isupper() or text[0] == "`" or text[0] == "["
        assert text.endswith(".")


def test_the_page_names_each_code_once_and_no_other() -> None:
    page = (ROOT / "docs" / "refusals.md").read_text("utf-8")
    assert sorted(re.findall(r"^### `(.+)`$", page, re.MULTILINE)) == sorted(explanations())
    for each in explanations().values():
        assert f"**{each.title}.** {each.meaning}" in page
        assert f"*What to do:* {each.remedy}" in page
