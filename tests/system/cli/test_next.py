"""Every next command that we print is parsed by our own command line: those that tests make us print (``conftest``
checks each), and those that stand in the source.
"""

from __future__ import annotations

import ast
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import hints
from .conftest import Run, Sim

SOURCE = Path(__file__).resolve().parents[3] / "src/aliquot"
_NAMES = {"next_step", "following", "command"}
_HAS_ONE = re.compile(rf"\b(?:{'|'.join(_NAMES)})\b *=|\bnote\(")
"""What a file with a next step has in it."""
FILES = [path for path in sorted(SOURCE.rglob("*.py")) if _HAS_ONE.search(path.read_text())]


def texts(node: ast.AST) -> Iterator[str]:
    """The strings that an expression may come to, with every placeholder filled in."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            for chosen in itertools.product(*map(_part, parts)):
                yield "".join(chosen)
        case ast.IfExp(body=body, orelse=other):
            yield from texts(body)
            yield from texts(other)
        case ast.BinOp(left=left, right=right):
            for head in texts(left):
                for tail in texts(right):
                    yield head + tail


def _part(part: ast.expr) -> list[str]:
    """What a part of an f-string may come to: a choice between texts is each of them, all else a number."""
    return list(texts(part.value if isinstance(part, ast.FormattedValue) else part)) or ["0"]


def steps(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the text of every next step of every error, blocker and note in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call):
            values = [k.value for k in node.keywords if k.arg == "next_step"]
            values += node.args if getattr(node.func, "attr", "") == "note" else []
        elif isinstance(node, ast.Assign):
            named = {t.id if isinstance(t, ast.Name) else getattr(t, "attr", "") for t in node.targets}
            values = [node.value] if named & _NAMES else []
        for value in values:
            for text in texts(value):
                yield value.lineno, text.rpartition("next     ")[2]


def test_there_is_something_to_check() -> None:
    assert len([text for path in FILES for _, text in steps(path) if "aliquot " in text]) > 40


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_every_next_step_in_the_source(path: Path) -> None:
    faults: list[str] = []
    for line, text in steps(path):
        try:
            hints.check(text)
        except AssertionError as fault:
            faults.append(f"{path.relative_to(SOURCE)}:{line}: {fault}")
    assert not faults, "\n".join(faults)


def test_a_command_that_is_none_would_be_found() -> None:
    for text in ("aliquot pln", "aliquot plan --kept", "then: aliquot drain --gpu 0", "aliquot sim", "aliquot explain"):
        with pytest.raises(AssertionError):
            hints.check(text)
    assert hints.commands("reboot the node, then: aliquot show") == ["aliquot show"]
    assert hints.commands("aliquot show 0 or aliquot plan --help") == ["aliquot show 0", "aliquot plan --help"]
    assert hints.commands("end the holders, or use --policy wait") == []


def test_next_commands_can_be_typed(a100: Sim, run: Run) -> None:
    """Following the advice leads from a refusal to a plan that works."""
    a100.node.set_mode(0, True)
    a100.node.create(0, "1g.5gb", 0)
    a100.node.hold(0, 7)
    refused = run("plan", "--gpu", "0", "--mig", "4g.20gb,3g.20gb", "-o", "json")
    assert refused.code == 20
    (blocker,) = refused.document["blockers"]
    assert blocker["next"] == "end process 40001 (python3), or add --policy wait"
    assert run("plan", "--gpu", "0", "--mig", blocker["suggestion"]).code == 10
    impossible = run("plan", "--gpu", "0", "--mig", "4g.20gb*2", "-o", "json").document["blockers"][0]
    assert run(*shlex.split(impossible["next"])[1:]).code == 10
    kept = run("plan", "--gpu", "0", "--mig", "7g.40gb")
    assert (kept.code, "fits" in kept.err) == (20, False), "nothing is to be destroyed for nothing"
    explained = run("explain", "2g.10gb", "-o", "json").document["answers"][0]
    assert run(*shlex.split(explained["next"])[1:]).code == 10
