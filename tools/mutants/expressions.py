"""Changes of expressions: comparisons, conditions, operators, calls, slices and comprehensions."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from mutants.edits import Edit

_Node = TypeVar("_Node", bound=ast.AST)

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_PAIRS: Final = (("any", "all"), ("min", "max"), ("startswith", "endswith"), ("lstrip", "rstrip"), ("removeprefix", "removesuffix"))
_SWAPPED: Final = {**dict(_PAIRS), **{second: first for first, second in _PAIRS}, "partition": "rpartition", "rpartition": "partition"}


def expression_edits(node: ast.AST) -> Iterator[Edit]:
    """Yield what can be changed about one node, without what lies in it."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            others = [*node.ops[:place], _COMPARISONS[type(operator)](), *node.ops[place + 1 :]]
            yield _replaced("comparison", node, _with(node, ops=others))
    elif isinstance(node, ast.BoolOp):
        yield _replaced("and-or", node, _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And()))
        for place in range(len(node.values)):
            left = _without(node.values, place)
            yield _replaced("operand", node, left[0] if len(left) == 1 else _with(node, values=left))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield _replaced("not" if isinstance(node.op, ast.Not) else "sign", node, node.operand)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        yield _replaced("operator", node, _with(node, op=_OPERATORS[type(node.op)]()))
    elif isinstance(node, ast.Call):
        yield from _call_edits(node)
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        yield from _slice_edits(node, node.slice)
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        for number, each in enumerate(node.generators):
            for place in range(len(each.ifs)):
                shorter = _with(each, ifs=_without(each.ifs, place))
                yield _replaced(
                    "filter", node, _with(node, generators=[*node.generators[:number], shorter, *node.generators[number + 1 :]])
                )
    elif isinstance(node, ast.If | ast.IfExp):
        yield from (_replaced("condition", node.test, ast.Constant(value)) for value in (True, False))
    elif isinstance(node, ast.While):
        yield _replaced("condition", node.test, ast.Constant(False))


def _call_edits(node: ast.Call) -> Iterator[Edit]:
    for place, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield _replaced("key" if keyword.arg == "key" else "keyword", node, _with(node, keywords=_without(node.keywords, place)))
    if isinstance(node.func, ast.Attribute) and node.func.attr in _SWAPPED:
        yield _replaced("function", node, _with(node, func=_with(node.func, attr=_SWAPPED[node.func.attr])))
    elif isinstance(node.func, ast.Name):
        if node.func.id in _SWAPPED:
            yield _replaced("function", node, _with(node, func=_with(node.func, id=_SWAPPED[node.func.id])))
        if node.func.id == "sorted":
            yield _replaced("sorted", node, _with(node, func=_with(node.func, id="list"), keywords=[]))


def _slice_edits(node: ast.Subscript, bounds: ast.Slice) -> Iterator[Edit]:
    one = ast.Constant(1)
    for name, bound in (("lower", bounds.lower), ("upper", bounds.upper)):
        if bound is not None:
            others: tuple[ast.expr | None, ...] = (ast.BinOp(bound, ast.Add(), one), None)
        else:
            others = (one if name == "lower" else ast.UnaryOp(ast.USub(), one),)
        for other in others:
            yield _replaced("slice", node, _with(node, slice=_with(bounds, **{name: other})))


def _without(nodes: Sequence[_Node], place: int) -> list[_Node]:
    return [*nodes[:place], *nodes[place + 1 :]]


def _with(node: _Node, **fields: object) -> _Node:
    """Return a node that differs in these fields and shares the others."""
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _replaced(kind: str, node: ast.expr, new: ast.expr) -> Edit:
    return Edit(kind, node, node, written(new))


def written(node: ast.expr) -> str:
    """Return the text of an expression, such that it can stand wherever another one stood; one that is none if there is no text."""
    try:
        text = ast.unparse(node)
    except ValueError:  # an f-string that Python 3.11 has no quotes for
        return "?"
    return text if isinstance(node, ast.Constant | ast.Name | ast.Call | ast.Attribute | ast.Subscript) else f"({text})"
