"""A change of a source text at one place, found in its syntax tree."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class Edit(NamedTuple):
    """A proposal: the text between two nodes, from the beginning of `first` to the end of `last`, becomes `text`."""

    kind: str
    first: ast.expr | ast.stmt
    last: ast.expr | ast.stmt
    text: str


@dataclass(frozen=True)
class Mutant:
    """A module with one change.

    `line` and `column` say where it is, counted from 1. `before` and `after` are the lines that it touches, without
    their indentation, and are what it is known by. `lines` are those of its statement, by which tests are found.
    """

    module: str
    kind: str
    line: int
    column: int
    original: str
    mutated: str
    before: str
    after: str
    lines: range
    source: bytes

    @property
    def place(self) -> str:
        """Return the module and the line, as editors read it."""
        return f"{self.module}:{self.line}"


class Text:
    """A source text and where the nodes of its syntax tree lie in it; offsets are of UTF-8 bytes, as the tree's are."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.tree = ast.parse(source)

    @cached_property
    def _line_begins(self) -> list[int]:
        begins = [0]
        for line in self.source.split(b"\n"):
            begins.append(begins[-1] + len(line) + 1)
        return begins

    def begin(self, node: ast.expr | ast.stmt) -> int:
        """Return where a node begins."""
        return self._line_begins[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        """Return where a node ends."""
        assert node.end_lineno is not None  # a parsed node has both
        assert node.end_col_offset is not None
        return self._line_begins[node.end_lineno - 1] + node.end_col_offset

    def mutant(self, module: str, edit: Edit, lines: range) -> Mutant | None:
        """Carry out a proposal; None if what comes of it does not compile, or says the same."""
        begin, end = self.begin(edit.first), self.end(edit.last)
        changed = self.source[:begin] + edit.text.encode() + self.source[end:]
        try:
            tree = ast.parse(changed)
            compile(changed, module, "exec", dont_inherit=True)
        except SyntaxError:
            return None
        if ast.dump(tree) == self._dump:
            return None
        first, last = self.source.rfind(b"\n", 0, begin) + 1, self.source.find(b"\n", end)
        last = len(self.source) if last < 0 else last
        return Mutant(
            module=module,
            kind=edit.kind,
            line=edit.first.lineno,
            column=edit.first.col_offset + 1,
            original=_on_one_line(self.source[begin:end]),
            mutated=_on_one_line(edit.text.encode()),
            before=_on_one_line(self.source[first:last]),
            after=_on_one_line(self.source[first:begin] + edit.text.encode() + self.source[end:last]),
            lines=lines,
            source=changed,
        )

    @cached_property
    def _dump(self) -> str:
        return ast.dump(self.tree)


def _on_one_line(text: bytes) -> str:
    return " ".join(text.decode().split())
