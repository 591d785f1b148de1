"""The areas that mutants are drawn from, and the operators that make them: pure functions of the sources."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

AREAS: dict[str, Sequence[str]] = {
    "engine": ("core/engine/*.py",),
    "journal": ("hardware/state/*journal*.py", "hardware/state/current_run.py", "hardware/catalog_recorder.py"),
    "store": (
        "foundation/state_store.py",
        "foundation/atomic_file.py",
        "foundation/signals.py",
        "hardware/state/boot_record_file.py",
        "kubernetes/label_agent/agent/state_file.py",
        "kubernetes/node_agent/state_file_report.py",
        "node/usage_tracker.py",
        "node/holders/reservations.py",
    ),
    "lock": (
        "foundation/lock.py",
        "foundation/call_watchdog.py",
        "foundation/driver_calls.py",
        "kubernetes/node_agent/role_lock.py",
        "kubernetes/gpu/pause_owner.py",
    ),
    "agent": ("kubernetes/label_agent/agent/*.py", "kubernetes/node_agent/*.py"),
    "page": ("dashboard/security/*.py", "dashboard/forms.py", "dashboard/pending_changes.py"),
    "webhook": ("kubernetes/virtual_machines/webhook/*.py",),
}
"""Files below ``src/aliquot``. A file that two areas name belongs to the first one."""

_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}


class Mutant(NamedTuple):
    """``text`` instead of the bytes from ``start`` to ``end`` of a file. ``first`` and ``last`` are the lines of the
    statement around it. ``in_function``: it runs when the function is called, not when the module is imported.
    """

    area: str
    file: str
    line: int
    start: int
    end: int
    text: str
    first: int
    last: int
    in_function: bool

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}:{self.start}:{self.text or 'pass'}"

    def applied(self, source: bytes) -> bytes:
        """Return the source with the mutant in it."""
        return source[: self.start] + self.text.encode() + source[self.end :]


_Text = Callable[[ast.expr], str]


class _Place(NamedTuple):
    """The place of a node: the lines of its statement, and whether a function is around it."""

    first: int
    last: int
    in_function: bool


def mutants(root: Path) -> list[Mutant]:
    """Return all that the operators make of all areas of a checkout, in a fixed order."""
    found, taken = [], set[Path]()
    for area, patterns in AREAS.items():
        files = {path for pattern in patterns for path in (root / "src/aliquot").glob(pattern)} - taken
        taken |= files
        for path in sorted(files):
            name = path.relative_to(root / "src/aliquot").as_posix()
            found += [Mutant(area, name, *each) for each in changes(path.read_bytes())]
    return found


def changes(source: bytes) -> Iterator[tuple[int, int, int, str, int, int, bool]]:
    """Yield what the operators make of a source, as the fields of Mutant from ``line`` on."""
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset

    def text(node: ast.expr) -> str:
        start, end = span(node)
        return source[start:end].decode()

    for node, place in _places(ast.parse(source), _Place(0, 0, False)):
        for changed, new in _operators(node, text):
            yield changed.lineno, *span(changed), new, *place


def _places(node: ast.AST, place: _Place) -> Iterator[tuple[ast.AST, _Place]]:
    """Yield every node below with its place. An f-string is left out: before Python 3.12 what is inside of one does not
    know its place.
    """
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue
            here = place
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name == "body":
                here = here._replace(in_function=True)
            if isinstance(child, ast.stmt) or (isinstance(node, ast.stmt) and hasattr(node, "body")):
                ends = getattr(child, "end_lineno", None) or place.last
                here = here._replace(first=getattr(child, "lineno", place.first), last=ends)
            yield child, here
            yield from _places(child, here)


def _operators(node: ast.AST, text: _Text) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield what to change at a node, and into which text."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield node, f"({text(left)} {_COMPARED[type(operator)]} {text(right)})"
        case ast.BoolOp(op=operator, values=[*values]):
            word = " or " if isinstance(operator, ast.And) else " and "
            yield node, f"({word.join(f'({text(each)})' for each in values)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"bool({text(operand)})"
        case ast.Constant(value=bool() as value):
            yield node, str(not value)
        case ast.Constant(value=int() as value):
            yield node, str(value + 1)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as operator, right=right):
            yield node, f"({text(left)} {'-' if isinstance(operator, ast.Add) else '+'} {text(right)})"
        case ast.If(test=test) | ast.IfExp(test=test):
            yield test, f"(not ({text(test)}))"
        case ast.Expr(value=ast.Call()):
            yield node, "pass"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield node, "return None"
