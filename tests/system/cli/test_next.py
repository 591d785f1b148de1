"""Every next command that Aliquot prints is valid on its own command line.

This covers the commands that tests print (``conftest`` checks each) and those in the source.
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
_HAS_ONE = re.compile(rf"\b(?:{'|'.join(_NAMES)}|step)\b *=|\bnote\(|\bStructuredText\(")
"""Matches files that contain a next step."""
FILES = [path for path in sorted(SOURCE.rglob("*.py")) if _HAS_ONE.search(path.read_text())]


def texts(node: ast.AST) -> Iterator[str]:
    """Yield the possible values of a string expression, with every placeholder filled in."""
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
        case ast.Call(args=parts) if is_structured(node):
            for chosen in itertools.product(*map(_part, parts)):
                yield "".join(chosen)
        case ast.Call(func=ast.Name("GpuOption")):
            yield "--gpu 0"


def is_structured(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "StructuredText"


def _part(part: ast.expr) -> list[str]:
    """Return the possible values of a part of an f-string. A conditional has several; other expressions become a
    number.
    """
    return list(texts(part.value if isinstance(part, ast.FormattedValue) else part)) or ["0"]


def steps(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every next step of errors, blockers and notes in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call):
            values = [k.value for k in node.keywords if k.arg in ("next_step", "step")]
            values += node.args if getattr(node.func, "attr", "") == "note" else []
        elif isinstance(node, ast.Assign):
            named = {t.id if isinstance(t, ast.Name) else getattr(t, "attr", "") for t in node.targets}
            values = [node.value] if named & _NAMES or is_structured(node.value) else []
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
    # Following the printed commands leads from a refusal to a plan that works.
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
    assert (kept.code, "fits" in kept.err) == (20, False), "nothing is destroyed without need"
    explained = run("explain", "2g.10gb", "-o", "json").document["answers"][0]
    assert run(*shlex.split(explained["next"])[1:]).code == 10


_CONFIG = """version: aliquot/v1
configs:
  day:
    - {gpus: all, mig: {3g.20gb: 2}}
  night:
    - {gpus: all, mig: disabled}
"""


@pytest.mark.parametrize(
    ("body", "words", "step"),
    [
        (_CONFIG, ("-c", "dya"), "aliquot plan -f gpus.yaml -c day"),
        (_CONFIG, ("-c", "other"), "aliquot plan -f gpus.yaml -c day"),
        (_CONFIG, (), "aliquot plan -f gpus.yaml -c day"),
        (_CONFIG.replace("gpus:", "gpu:"), ("-c", "night"), "aliquot plan -f gpus.yaml -c night"),
        ("version: aliquot/v1\nconfigs: [\n", (), "aliquot plan -f gpus.yaml"),
    ],
)
def test_an_error_of_a_file_has_a_next_command(
    body: str, words: tuple[str, ...], step: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gpus.yaml").write_text(body)
    for verb in ("plan", "apply", "verify"):
        refused = run(verb, "-f", "gpus.yaml", *words)
        # A file that was wrong is planned before it is applied.
        same = step if verb != "verify" else step.replace("aliquot plan", "aliquot verify")
        assert (refused.code, refused.err.splitlines()[-1]) == (2, f"  next     {same}")


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (("--add", "1g.5gb"), "aliquot plan --gpu 0 --add 1g.5gb"),
        (("--remove", "1g.5gb", "--add", "2g.10gb"), "aliquot plan --gpu 0 --add 2g.10gb --remove 1g.5gb"),
        (("--mig", "1g.5gb,2g.10gb"), "aliquot plan --gpu 0 --mig 1g.5gb,2g.10gb"),
        (("--total", "--mig", "1g.5gb"), "aliquot plan --gpu 0 --mig 1g.5gb --total"),
    ],
)
def test_a_request_without_a_gpu_is_repeated_with_one(words: tuple[str, ...], step: str, dgx: Sim, run: Run) -> None:
    refused = run("plan", *words)
    assert (refused.code, refused.err.splitlines()[-1]) == (2, f"  next     {step}")


def test_a_typing_error_of_a_profile_gets_only_profiles_of_the_node(a100: Sim, run: Run) -> None:
    refused = run("plan", "--gpu", "0", "--mig", "1g.5g")
    assert "(did you mean 1g.5gb or 1g.5gb+me or 1g.10gb?)" in refused.err


def test_a_list_with_spaces_is_explained(a100: Sim, run: Run) -> None:
    refused = run("plan", "--gpu", "0", "--mig", "1g.5gb,", "2g.10gb")
    assert (refused.code, "a list has no spaces: 1g.5gb,2g.10gb" in refused.err) == (2, True)


def test_an_instance_or_node_that_does_not_exist(a100: Sim, run: Run) -> None:
    assert run("sim", "hold", "0", "3").err.endswith("  next     aliquot sim show one\n")
    assert run("show", "--sim", "oen").err.endswith("  next     aliquot sim list\n")


def test_detach_without_a_device_proposes_all(run: Run) -> None:
    assert run("libvirt", "detach", "win11").err.endswith("  next     aliquot libvirt detach win11 --all\n")


def test_a_boot_without_a_record_says_what_records(a100: Sim, run: Run) -> None:
    assert run("restore", "--boot").err == "next     aliquot apply --help\n"
