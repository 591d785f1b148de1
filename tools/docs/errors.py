"""docs/reference/errors.md: every error that a user may see, and every refusal of the planner as it is printed."""

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

from tools.docs.refusals import CASES, UNSHOWN, machines, messages
from tools.docs.text import first, joined, made, table

import aliquot
from aliquot.cli.command_table import EXIT_CODES
from aliquot.core.model.desired import PlanRule
from aliquot.errors import AliquotError, BlockedError, ConfigError, HardwareError, UsageError

SOURCE = Path(aliquot.__file__).parent
GENERAL = (AliquotError, BlockedError, ConfigError, UsageError, HardwareError)
"""Classes whose next step depends on the case."""
CASES_OF_ONE = {
    "UNKNOWN_COMMAND": "the verb does not exist",
    "UNKNOWN_TYPE": "no GPU has a vGPU type of that name",
    "NO_VGPU": "no vGPU of that type is free here",
    "NO_MDEV": "the mdev does not exist, or this kernel has no mdevs",
    "NOT_DEFINED": "libvirt has no definition of that mdev",
    "MIG_TYPE": "a MIG-backed vGPU needs a GPU instance, which libvirt does not create",
    "NOT_DONE": "libvirt accepted the change, but the VM does not show it when it is read again",
    "TRANSIENT": "the VM has no definition in libvirt: only the running VM can be changed, with `--live`",
    "CDI_OFF": "CDI is disabled in the container runtime",
    "NO_CDI_NAME": "no CDI file names that device",
}
"""The values that the code assigns to ``error.code``, directly or as the argument of a function."""


def page() -> str:
    """Return the whole page."""
    return joined([*_head(), *_classes(), *_rules()])


def _head() -> Iterator[str]:
    yield from (
        "# Errors",
        "",
        made("errors.md", "the error classes, and from real refusals on simulated nodes"),
        "",
    )
    yield "The meaning of each error code, and the next step. A message has a headline with the code, the details,"
    yield "and the next command. With `-o json` it is an object on stderr (`code`, `message`, `details`, `next`,"
    yield "`exit_code`)."
    yield ""
    yield from table(("exit code", "meaning"), EXIT_CODES)
    yield ""


def classes() -> list[type[AliquotError]]:
    """Return every error class of the package. Modules of an extra that is not installed define none."""
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
    yield "*Next* has the commands that most often come with the code. The message has the one for your case."
    yield ""
    rows: dict[tuple[int, str], list[str]] = {}
    steps: dict[tuple[int, str], list[str]] = {}
    reported = _steps()
    for kind in classes():
        meaning = "A defect of Aliquot itself: please report it" if kind is AliquotError else first(kind.__doc__)
        rows.setdefault((kind.exit_code, kind.code), []).append(meaning)
        steps.setdefault((kind.exit_code, kind.code), []).extend(
            () if kind in GENERAL else reported.get(kind.__name__, ())
        )
    yield from table(
        ("code", "exit code", "meaning", "next"),
        (
            (f"`{code}`", number, " ".join(dict.fromkeys(found)), "; ".join(dict.fromkeys(steps[number, code][:3])))
            for (number, code), found in rows.items()
        ),
    )
    yield from ("", "Codes for single cases of the errors above:", "")
    libvirt = sorted({(f"`{code}`", reported) for code, reported in _libvirt()})
    required = _set_codes() | (_passed_codes() - {code for code, _ in _libvirt()} - set(get_args(PlanRule)))
    assert required == set(CASES_OF_ONE), (
        f"tools/docs/errors.py: missing or unneeded explanations: {sorted(required ^ set(CASES_OF_ONE))}"
    )
    yield from table(("code", "meaning"), ((f"`{code}`", reported) for code, reported in sorted(CASES_OF_ONE.items())))
    yield from ("", "Errors of libvirt, recognized by libvirt's message:", "")
    yield from table(("code", "meaning"), libvirt)
    yield ""


def _trees(word: str) -> Iterator[ast.Module]:
    """Yield the syntax trees of the files that have this word. Parsing all files would take seconds."""
    for path in sorted(SOURCE.glob("**/*.py")):
        text = path.read_text()
        if word in text:
            yield ast.parse(text)


@cache
def _steps() -> dict[str, list[str]]:
    """Return the next steps of errors by class, the most frequent first. Values are shown as ``...``."""
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


def _code_assignments(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the values that are assigned to an attribute ``code``."""
    for node in (each for each in ast.walk(tree) if isinstance(each, ast.Assign)):
        if isinstance(node.targets[0], ast.Attribute) and node.targets[0].attr == "code":
            yield node.value


@cache
def _set_codes() -> set[str]:
    """Return the codes that are set on single errors: ``error.code = "X"``."""
    values = (value for tree in _trees(".code = ") for value in _code_assignments(tree))
    return {str(value.value) for value in values if isinstance(value, ast.Constant) and _is_rule(value.value)}


@cache
def _passed_codes() -> set[str]:
    """Return the codes that are passed to functions of the form ``def f(code): error.code = code``."""
    found: set[str] = set()
    for tree in _trees(".code = "):
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            names = [each.arg for each in function.args.args]
            for value in _code_assignments(function):
                if not isinstance(value, ast.Name) or value.id not in names:
                    continue
                passed = [_argument(call, names.index(value.id), value.id) for call in calls if _calls(call, function)]
                found |= {str(each.value) for each in passed if isinstance(each, ast.Constant)}
                unread = [ast.unparse(each) for each in passed if not isinstance(each, ast.Constant)]
                assert not unread, f"tools/docs/errors.py cannot read the codes passed to {function.name}: {unread}"
    return found


def _calls(call: ast.Call, function: ast.FunctionDef) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == function.name


def _argument(call: ast.Call, position: int, name: str) -> ast.expr:
    return next((word.value for word in call.keywords if word.arg == name), None) or call.args[position]


def _libvirt() -> Iterator[tuple[str, str]]:
    for tree in (ast.parse((SOURCE / "libvirt/errors.py").read_text()),):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node.func) == "_Row":
                code, _, reported = node.args[:3]
                if isinstance(code, ast.Constant) and isinstance(reported, ast.Constant):
                    yield str(code.value), str(reported.value)


def _name(node: ast.expr) -> str:
    return str(getattr(node, "id", getattr(node, "attr", "")))


def _is_rule(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Z][A-Z_]{3,}", value) is not None


def _rules() -> Iterator[str]:
    yield from ("## Rules of the planner", "")
    yield "The exit code is 20 unless noted otherwise: the request is valid, but cannot be applied here or now. Each"
    yield "output is from a simulated node."
    yield ""
    shown = {case.rule for case in CASES}
    for case in sorted(CASES):
        yield f"### {case.rule}"
        yield ""
        yield f"On `{case.node}`" + (f", after `{'`, `'.join(case.before)}`" if case.before else "") + ":"
        yield ""
        for name, text in case.files:
            yield from (f"`{name}`:", "", "```text", *text.splitlines(), "```", "")
        yield from ("```text", f"> {case.command}", *_last_reported(case), "```", "")
    yield from ("### Devices of one virtual machine", "")
    found = machines()
    yield from table(("rule", "example"), ((f"`{rule}`", message) for rule, message in sorted(found.items())))
    yield ""
    yield from ("### Not shown", "", "Rules that cannot occur on a simulated node, and the reasons:", "")
    yield from table(("rule", "why"), ((f"`{rule}`", why) for rule, why in sorted(UNSHOWN.items())))
    rules = set(get_args(PlanRule))
    missing = rules - shown - found.keys() - UNSHOWN.keys()
    assert not missing, f"tools/docs/refusals.py has no case for {sorted(missing)}"
    gone = {*UNSHOWN} - rules
    assert not gone, f"tools/docs/refusals.py has rules that do not exist any more: {sorted(gone)}"


def _last_reported(case: object) -> list[str]:
    from tools.docs.refusals import Case

    assert isinstance(case, Case)
    text = messages(case)
    assert f"[{case.rule}]" in text or f"rule     {case.rule}" in text or "[CONFIG]" in text, (case.rule, text)
    return [line for line in text.splitlines() if not line.startswith("note ")][:12]
