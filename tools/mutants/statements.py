"""Changes of statements: dropped ones, other ways out of a loop or a function, a branch or an exception that is gone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mutants.edits import Edit
from mutants.expressions import written


def statement_edits(node: ast.AST) -> Iterator[Edit]:
    """Yield what can be changed about one statement, without what lies in it."""
    if isinstance(node, ast.Continue | ast.Break):
        other = "break" if isinstance(node, ast.Continue) else "continue"
        yield from (Edit("jump", node, node, text) for text in (other, "pass"))
    elif isinstance(node, ast.Return):
        value = node.value
        if value is None:
            yield Edit("return", node, node, "pass")
        elif not (isinstance(value, ast.Constant) and value.value is None):
            yield Edit("return", node, node, "return None")
    elif _can_be_dropped(node):
        assert isinstance(node, ast.stmt)
        yield Edit("dropped", node, node, "pass")
    elif isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Tuple) and len(node.type.elts) > 1:
        for place in range(len(node.type.elts)):
            left = node.type.elts[:place] + node.type.elts[place + 1 :]
            yield Edit("exception", node.type, node.type, written(ast.Tuple(left, ast.Load())))
    if isinstance(node, ast.If | ast.For | ast.While | ast.Try) and node.orelse:
        is_elif = isinstance(node, ast.If) and isinstance(node.orelse[0], ast.If) and node.orelse[0].col_offset == node.col_offset
        yield Edit("else", node.orelse[0], node.orelse[-1], "else: pass" if is_elif else "pass")
    if isinstance(node, ast.Try) and node.finalbody:
        yield Edit("finally", node.finalbody[0], node.finalbody[-1], "pass")


def _can_be_dropped(node: ast.AST) -> bool:
    """Whether a statement does something besides giving a name to a value: without the name nothing would run at all."""
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    return isinstance(node, ast.AugAssign | ast.Raise | ast.Delete)
