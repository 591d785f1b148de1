"""Checks of ``seed_sentences.yaml``: rows without a test that the gate runs, repeated rows, wrong counts."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[3]
NEVER = frozenset({"skip", "xfail"})
DRAWN = "long"


class Sentence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sentence of a document: tested, or an aside."""

    says: str
    tests: tuple[str, ...] = ()
    differs: str = ""
    aside: str = ""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    part: str
    sentences: tuple[Sentence, ...]


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    source: str
    stated: int
    aside: int
    parts: tuple[Part, ...]


def documents(value: Any) -> list[Document]:
    """Read the file's value. Raise msgspec.ValidationError for another form."""
    return msgspec.convert(value["documents"], list[Document])


def problems(found: Iterable[Document], read: Callable[[str], str]) -> Iterator[str]:
    """Yield what is wrong. ``read`` returns the source of a test file, or "" if there is none."""
    for document in found:
        rows = [(part.part, each) for part in document.parts for each in part.sentences]
        for part, each in rows:
            where = f"{document.name}, {part}: {each.says!r}"
            yield from (f"{where} {why}" for why in _row_problems(each, read))
        repeated = Counter(f"{document.name}, {part}: {each.says!r}" for part, each in rows)
        yield from (f"{row} is there {n} times" for row, n in repeated.items() if n > 1)
        counts = (sum(not each.aside for _, each in rows), sum(bool(each.aside) for _, each in rows))
        if counts != (document.stated, document.aside):
            wanted = f"{document.stated}, {document.aside}"
            yield f"{document.name} has {counts[0]} stated and {counts[1]} aside, not {wanted}"


def _row_problems(row: Sentence, read: Callable[[str], str]) -> Iterator[str]:
    if bool(row.tests) == bool(row.aside) or (row.aside and row.differs):
        yield "has neither or both of tests and aside"
    if len(set(row.tests)) < len(row.tests):
        yield "names a test twice"
    marks = {test: marks_of(test, read) for test in row.tests}
    for test, given in marks.items():
        if given is None:
            yield f"names {test}, which does not exist"
        elif never := given & NEVER:
            yield f"names {test}, which never passes: {', '.join(sorted(never))}"
    if row.tests and all(given and DRAWN in given for given in marks.values()):
        yield "has only long tests, which most runs leave out"


def marks_of(test: str, read: Callable[[str], str]) -> frozenset[str] | None:
    """Return the names of the marks of a test, by its node id without parameters; None if it does not exist."""
    file, *names = test.split("::")
    tree: ast.Module | ast.ClassDef | ast.FunctionDef = _parsed(read(file))
    found = _own_marks(tree)
    for name in names:
        inner = next((n for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == name), None)
        if inner is None:
            return None
        tree, found = inner, found | _own_marks(inner)
    is_test = isinstance(tree, ast.FunctionDef) and tree.name.startswith("test_")
    return found if is_test else None


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _own_marks(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> frozenset[str]:
    """Return the marks of decorators and of ``pytestmark``, and what its body calls first of all."""
    given: list[ast.AST] = [] if isinstance(node, ast.Module) else list(node.decorator_list)
    for line in node.body:
        if isinstance(line, ast.Assign) and any(getattr(name, "id", "") == "pytestmark" for name in line.targets):
            given += line.value.elts if isinstance(line.value, ast.List | ast.Tuple) else [line.value]
        elif isinstance(line, ast.Expr) and isinstance(line.value, ast.Call):
            given.append(line.value)
    return frozenset(name for each in given if (name := _pytest_name(each)))


def _pytest_name(node: ast.AST) -> str:
    """Return ``skip`` for ``pytest.mark.skip``, ``pytest.mark.skip(...)`` and ``pytest.skip(...)``; "" for others."""
    text = ast.unparse(node.func if isinstance(node, ast.Call) else node)
    return text.rpartition(".")[2] if text.startswith("pytest.") else ""


def source_of(file: str) -> str:
    """Read a file of the repository."""
    path = ROOT / file
    return path.read_text() if path.is_file() else ""
