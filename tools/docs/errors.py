"""docs/reference/errors.md: every error that a person may see, and every refusal of the planner as it is told."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

from tools.docs.refusals import CASES, UNSHOWN, machines, said
from tools.docs.text import first, made, table

import aliquot
from aliquot.cli.command_table import EXIT_CODES
from aliquot.core.model.desired import PlanRule
from aliquot.errors import AliquotError, BlockedError, ConfigError, HardwareError, UsageError

SOURCE = Path(aliquot.__file__).parent
GENERAL = (AliquotError, BlockedError, ConfigError, UsageError, HardwareError)
"""Classes of which each case has another next step."""
CASES_OF_ONE = {
    "UNKNOWN_COMMAND": "there is no such verb",
    "UNKNOWN_TYPE": "no GPU has a vGPU type of that name",
    "NO_VGPU": "no vGPU of that type is free here",
    "NO_MDEV": "there is no such mdev, or this kernel has none",
    "NOT_DEFINED": "libvirt has no definition of that mdev",
    "MIG_TYPE": "a MIG-backed vGPU needs its GPU instance first, which libvirt does not make",
    "NOT_DONE": "libvirt took it, and the machine read back does not show it",
    "CDI_OFF": "the container runtime has CDI switched off",
    "NO_CDI_NAME": "no CDI file names that device",
}
"""What ``error.code = ...`` is set to somewhere."""


def page() -> str:
    """The whole page."""
    return "\n".join([*_head(), *_classes(), *_rules()]) + "\n"


def _head() -> Iterator[str]:
    yield from (
        "# Errors, and what to do",
        "",
        made("errors.md", "the error classes, and from refusals that are really brought about"),
        "",
    )
    yield "For whoever got a no, and for programs that act on it. At the end you know what each code means. A"
    yield "message has one headline with the code, what is in the way, and"
    yield "the next command; with `-o json` the same as an object on stderr (`code`, `message`, `details`, `next`,"
    yield "`exit_code`)."
    yield ""
    yield from table(("exit code", "meaning"), EXIT_CODES)
    yield ""


def classes() -> list[type[AliquotError]]:
    """Every class of error that the package has. Modules of an extra that is not installed define none."""
    for module in pkgutil.walk_packages(aliquot.__path__, "aliquot."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "aliquot":
                raise
    found: list[type[AliquotError]] = []
    rest = [AliquotError]
    while rest:
        kind = rest.pop()
        found.append(kind)
        rest += kind.__subclasses__()
    return sorted(set(found), key=lambda kind: (kind.exit_code, kind.code, kind.__name__))


def _classes() -> Iterator[str]:
    yield from ("## Codes", "")
    yield "*Next* are the commands that come with it most often; the message itself names the one for your case."
    yield ""
    rows: dict[tuple[int, str], list[str]] = {}
    steps: dict[tuple[int, str], list[str]] = {}
    told = _steps()
    for kind in classes():
        meaning = "A defect of Aliquot itself: please report it" if kind is AliquotError else first(kind.__doc__)
        rows.setdefault((kind.exit_code, kind.code), []).append(meaning)
        steps.setdefault((kind.exit_code, kind.code), []).extend(() if kind in GENERAL else told.get(kind.__name__, ()))
    yield from table(
        ("code", "exit code", "meaning", "next"),
        (
            (f"`{code}`", number, " ".join(dict.fromkeys(found)), "; ".join(dict.fromkeys(steps[number, code][:3])))
            for (number, code), found in rows.items()
        ),
    )
    yield from ("", "Codes that a place in the code gives to one case of the above:", "")
    given = _given()
    assert given == set(CASES_OF_ONE), (
        f"tools/docs/errors.py explains {sorted(given ^ set(CASES_OF_ONE))} not, or in vain"
    )
    yield from table(("code", "meaning"), ((f"`{code}`", told) for code, told in sorted(CASES_OF_ONE.items())))
    yield from ("", "Of libvirt, found by its own sentence:", "")
    yield from table(("code", "meaning"), sorted({(f"`{code}`", told) for code, told in _libvirt()}))
    yield ""


def _trees(word: str) -> Iterator[ast.Module]:
    """The files that have this word: to read and walk all of them takes seconds."""
    for path in sorted(SOURCE.glob("**/*.py")):
        text = path.read_text()
        if word in text:
            yield ast.parse(text)


@cache
def _steps() -> dict[str, list[str]]:
    """The next steps that errors are raised with, by class, the most frequent first; what is filled in when an error is
    raised shows as ``...``.
    """
    found: dict[str, Counter[str]] = {}
    for tree in _trees("next_step="):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                texts = [_text(word.value) for word in node.keywords if word.arg == "next_step"]
                found.setdefault(_name(node.func), Counter()).update(f"`{text}`" for text in texts if text)
    return {name: sorted(texts, key=lambda text: (-texts[text], text)) for name, texts in found.items()}


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = ("..." if isinstance(v, ast.FormattedValue) else str(getattr(v, "value", "")) for v in node.values)
        return "".join(parts)
    return ""


@cache
def _given() -> set[str]:
    """Codes that are set on one error: ``error.code = "X"``."""
    return {
        str(node.value.value)
        for tree in _trees(".code = ")
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Attribute)
        and node.targets[0].attr == "code"
        and isinstance(node.value, ast.Constant)
        and _is_rule(node.value.value)
    }


def _libvirt() -> Iterator[tuple[str, str]]:
    for tree in (ast.parse((SOURCE / "libvirt/errors.py").read_text()),):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node.func) == "_Row":
                code, _, told = node.args[:3]
                if isinstance(code, ast.Constant) and isinstance(told, ast.Constant):
                    yield str(code.value), str(told.value)


def _name(node: ast.expr) -> str:
    return str(getattr(node, "id", getattr(node, "attr", "")))


def _is_rule(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Z][A-Z_]{3,}", value) is not None


def _rules() -> Iterator[str]:
    yield from ("## Rules of the planner", "")
    yield "Exit code 20 unless said otherwise: the wish is understood, and this machine, or this moment, is in the"
    yield "way. Each was brought about on a simulated node."
    yield ""
    shown = {case.rule for case in CASES}
    for case in sorted(CASES):
        yield f"### {case.rule}"
        yield ""
        yield f"On `{case.node}`" + (f", after `{'`, `'.join(case.before)}`" if case.before else "") + ":"
        yield ""
        for name, text in case.files:
            yield from (f"`{name}`:", "", "```text", *text.splitlines(), "```", "")
        yield from ("```text", f"> {case.command}", *_said(case), "```", "")
    yield from ("### Of what one virtual machine may hold", "")
    found = machines()
    yield from table(("rule", "for instance"), ((f"`{rule}`", message) for rule, message in sorted(found.items())))
    yield ""
    yield from ("### Not shown", "", "Rules that no simulated node can be brought to, and why:", "")
    yield from table(("rule", "why"), ((f"`{rule}`", why) for rule, why in sorted(UNSHOWN.items())))
    rules = set(get_args(PlanRule))
    missing = rules - shown - found.keys() - UNSHOWN.keys()
    assert not missing, f"tools/docs/refusals.py brings none of these about: {sorted(missing)}"
    gone = {*UNSHOWN} - rules
    assert not gone, f"tools/docs/refusals.py tells of rules that are no more: {sorted(gone)}"


def _said(case: object) -> list[str]:
    from tools.docs.refusals import Case

    assert isinstance(case, Case)
    text = said(case)
    assert f"[{case.rule}]" in text or f"rule     {case.rule}" in text or "[CONFIG]" in text, (case.rule, text)
    return [line for line in text.splitlines() if not line.startswith("note ")][:12]
