"""Changes of constants and of what a literal holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from mutants.edits import Edit
from mutants.expressions import written

#: What arguments and variables are called that hold nothing but words for people.
_WORDS: Final = frozenset({"expected", "found", "remedy", "message", "help", "description", "epilog"})


def constant_edits(node: ast.AST) -> Iterator[Edit]:
    """Yield what can be changed about one constant, or about the elements of one literal."""
    if isinstance(node, ast.Constant):
        yield from (Edit("constant", node, node, repr(other)) for other in _others(node.value))
    elif isinstance(node, ast.Tuple | ast.List | ast.Set) and not isinstance(getattr(node, "ctx", None), ast.Store):
        for place in range(len(node.elts) if len(node.elts) > 1 else 0):
            left = node.elts[:place] + node.elts[place + 1 :]
            yield Edit("element", node, node, written(type(node)(left, ast.Load()) if not isinstance(node, ast.Set) else ast.Set(left)))
    elif isinstance(node, ast.Dict) and len(node.keys) > 1:
        for place in range(len(node.keys)):
            keys, values = node.keys[:place] + node.keys[place + 1 :], node.values[:place] + node.values[place + 1 :]
            yield Edit("element", node, node, written(ast.Dict(keys, values)))
    elif isinstance(node, ast.arguments):
        for default in (*node.defaults, *node.kw_defaults):
            if default is not None and not (isinstance(default, ast.Constant) and default.value is not None):
                yield Edit("default", default, default, "object()")


def _others(value: object) -> Iterator[object]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1)
    elif isinstance(value, bytes):
        yield b"X" + value
    elif isinstance(value, str) and " " not in value.strip():  # what has a space between words is prose
        yield "X" + value


def only_words(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what lies directly in a node and is text for people: messages of errors, and whatever is called like one."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        yield from (each for each in node.exc.args if isinstance(each, ast.Constant))
    elif isinstance(node, ast.Call):
        yield from (keyword.value for keyword in node.keywords if keyword.arg in _WORDS and isinstance(keyword.value, ast.Constant))
    elif isinstance(node, ast.Assign):
        names = {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        if names & _WORDS:
            yield from (each for each in ast.walk(node.value) if isinstance(each, ast.Constant) and isinstance(each.value, str))
