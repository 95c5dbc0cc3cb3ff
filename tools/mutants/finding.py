"""Finds every mutant of a module: each change of each node, without what no test is to see."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mutants.constants import constant_edits, only_words
from mutants.edits import Mutant, Text
from mutants.expressions import expression_edits
from mutants.statements import statement_edits


def mutants_of(module: str, source: bytes) -> list[Mutant]:
    """Return every mutant of a module that compiles, each once, in the order of the text."""
    text = Text(source)
    found: dict[bytes, Mutant] = {}
    for node, lines in _visited(text.tree, range(0), set()):
        for edits in (statement_edits, expression_edits, constant_edits):
            for edit in edits(node):
                own = isinstance(edit.first, ast.stmt)  # an else that is dropped is not where its if is
                mutant = text.mutant(module, edit, _until(edit.first, edit.last) if own else lines)
                if mutant is not None:
                    found.setdefault(mutant.source, mutant)
    return sorted(found.values(), key=lambda each: (each.line, each.column, each.kind, each.mutated))


def _visited(node: ast.AST, lines: range, words: set[ast.AST]) -> Iterator[tuple[ast.AST, range]]:
    """Yield the nodes whose changes count, each with the lines of the statement that it lies in."""
    if node in words or _is_for_readers(node):
        return
    if isinstance(node, ast.stmt):
        lines = _lines(node)
    words = words | set(only_words(node))
    yield node, lines
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _visited(child, lines, words)


def _is_for_readers(node: ast.AST) -> bool:
    """Whether a node is a docstring, an import, a type, a check for type checkers, or a text that is put together for people."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "TypeVar"
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.If):
        test = node.test
        return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or ast.unparse(test) == "__name__ == '__main__'"
    if isinstance(node, ast.Subscript):  # Mapping[str, int], and not BITS[dtype]
        name = ast.unparse(node.value).rpartition(".")[2]
        return name in ("dict", "list", "set", "frozenset", "tuple", "type") or (name[:1].isupper() and not name.isupper())
    return isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert)


def _lines(node: ast.stmt) -> range:
    """Return the lines of a statement; of one that holds others, those before the first of them."""
    body = getattr(node, "body", None)
    return range(node.lineno, max(body[0].lineno, node.lineno + 1)) if body else _until(node, node)


def _until(first: ast.expr | ast.stmt, last: ast.expr | ast.stmt) -> range:
    return range(first.lineno, (last.end_lineno or last.lineno) + 1)
