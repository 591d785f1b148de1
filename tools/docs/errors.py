"""docs/reference/errors.md: every error that a user may see, and every refusal of the planner as it is printed."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import get_args

from tools.docs.refusals import CASES, UNSHOWN, machines, messages
from tools.docs.text import first, joined, made, table

import aliquot
from aliquot.cli.command_table import EXIT_CODES
from aliquot.core.model.desired import AttachRule, PlanRule
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
    "ALREADY_OFFERED": "another Slurm node of this host offers the GPU",
    "AUTODETECT": "slurmd would detect other GPUs or types than the node offers",
    "CANNOT_LISTEN": "the address is in use, not of this host, or not permitted",
    "DUPLICATE_CDI": "another CDI file of the folder names the same devices",
    "FOREIGN_DEVICE": "a device node has another number than the driver's device",
    "GRES_TYPE": "Slurm does not accept the name of a GRES type, or its count",
    "HOOK": "a command of the hooks file failed",
    "KERNEL_REFUSES": "the kernel of a simulated node refuses to read or write the file",
    "MOUNT_BUSY": "the files of a simulated node are in use, so they stay mounted",
    "NEEDS_REBOOT": "MIG mode of a GPU changes only with a reset or a reboot",
    "NOT_IN_CONF": "the Slurm node is neither in slurm.conf nor dynamic",
    "NOT_MOUNTED": "the files of no simulated node are mounted there",
    "NOT_RECONFIGURED": "slurmctld does not have the new GRES of the node",
    "NOT_REGISTERED": "slurmd did not register the node, or not with its new GRES",
    "NOT_RESUMED": "the node goes down, or is drained, after each resume",
    "NO_CAPACITY": "the request does not fit into what the cluster has left",
    "NO_CHANGE": "no change of the Slurm node is in progress",
    "NO_CONFIG_MAP": "a ConfigMap that the settings name, or its key, does not exist",
    "NO_DEVICE": "the node has no device to offer",
    "NO_KERNEL_DEVICE": "the kernel lists no such device: the NVIDIA module is not loaded",
    "NO_MINOR": "the device minor of a GPU is not known, so its device node cannot be named",
    "NO_NUMBERING": "Slurm's numbers of the devices are not stored on this host, or do not match gres.conf",
    "NO_NVML": "the simulated node has no NVML library",
    "NO_SUCH_RESOURCE": "no node of the cluster offers the resource",
    "OTHER_VERSION": "the simulator's server belongs to another version of Aliquot",
    "OWN_TOKENS": "in a cluster the page takes the tokens of its users",
    "READ_DIFFERENTLY": "slurmd reads the lines differently than they are meant",
    "REBOOT_REQUESTED": "a reboot of the Slurm node is requested",
    "SHARED_SLURMD": "the unit or the options file belongs to the slurmd of another Slurm node",
    "SLURMD": "slurmd cannot be started or stopped",
    "UNREADABLE": "a configuration file of Slurm cannot be read",
    "UNSAFE_FOLDER": "another user can change the folder, so no library is loaded from it",
    "NO_PARTITION": "Slurm has no such partition, or it has no line in slurm.conf, or no MIG devices",
    "NO_SUCH_USER": "Slurm's accounting is asked for a user that this host does not know",
    "SAME_SLOT": "two instances of the GPU would have the same slot of the board",
    "ORDER_FILE": "nodes that share a directory of Slurm must all have a slot board, or none",
    "GATE_TOO_LATE": "the check of the jobs took longer than the reservation that keeps new ones away",
    "GATE_OPEN": "Slurm does not keep the reservation that keeps new jobs away",
    "PAD_IN_USE": "a job has a record that stands for no instance",
    "NO_SLOT_BOARD": "the node cannot have a slot board",
    "SLOTS_INTERRUPTED": "an earlier change of the slots was interrupted, and must end first",
    "MISSING_GPU": "a GPU of the slot board fell off the bus, or is not on the host",
    "SLOT_ORDER": "slurmd does not have the slots in the order of the board",
    "UNKNOWN_SLOT": "Slurm or the driver does not name the slot or device of a job",
    "HARMS_JOB": "slurmd would give a running job another device, or count it wrong",
    "WRONG_CAPABILITY": "the capability of an instance is not the one that the driver's formula gives",
}
"""The codes that are passed to a general error, also by a function that passes its parameter on."""
FINDINGS: dict[AttachRule, str] = {
    "DUPLICATE": "the definition has the device twice",
    "MANAGED": "`managed='yes'` on a vGPU: vfio-pci cannot take it",
    "NOT_BOUND": "a whole GPU is not bound to vfio-pci",
    "NO_MDEV": "the mdev does not exist, or has not been started",
    "NO_VGPU": "the virtual function has no vGPU",
    "WORLD": "the kernel changed from mdevs to vendor-specific VFIO, or back, since the device was attached",
}
"""The findings of ``aliquot libvirt check`` that are no rules of the planner."""
SHOWN_ELSEWHERE = set(get_args(PlanRule)) - {"MIG_TYPE", "UNKNOWN_TYPE"}
"""Rules of the planner, which the last section of the page shows."""


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
    required = _given()
    assert required == set(CASES_OF_ONE), (
        f"tools/docs/errors.py: missing or unneeded explanations: {sorted(required ^ set(CASES_OF_ONE))}"
    )
    yield from table(("code", "meaning"), ((f"`{code}`", reported) for code, reported in sorted(CASES_OF_ONE.items())))
    assert set(FINDINGS) == set(get_args(AttachRule)), "tools/docs/errors.py: explain each AttachRule"
    yield from ("", "Findings of `aliquot libvirt check` about devices of a VM's definition:", "")
    yield from table(("code", "meaning"), ((f"`{code}`", reported) for code, reported in sorted(FINDINGS.items())))
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


@cache
def _given() -> set[str]:
    """Return the codes of single errors, ``SomeError(..., code="X")``, that are neither a class's nor the planner's."""
    given = {
        str(word.value.value)
        for tree in _trees("code=")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _name(node.func).endswith("Error")
        for word in node.keywords
        if word.arg == "code" and isinstance(word.value, ast.Constant) and _is_rule(word.value.value)
    }
    passed_on = _passed_on() - {code for code, _ in _libvirt()}
    return (given | passed_on) - {kind.code for kind in classes()} - SHOWN_ELSEWHERE


def _passed_on() -> set[str]:
    """Return the codes that are passed to functions of the form ``def f(code): ... SomeError(..., code=code)``."""
    found: set[str] = set()
    for tree in _trees("code="):
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            names = [each.arg for each in function.args.args]
            for name in _codes_of_parameters(function, names):
                passed = [
                    _argument(call, names.index(name), name) for call in calls if _name(call.func) == function.name
                ]
                found |= {str(each.value) for each in passed if isinstance(each, ast.Constant) and _is_rule(each.value)}
    return found


def _codes_of_parameters(function: ast.FunctionDef, names: Sequence[str]) -> Iterator[str]:
    """Yield the parameters that a function passes to an error as its code."""
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        if _name(call.func).endswith("Error"):
            words = (word.value for word in call.keywords if word.arg == "code")
            yield from (each.id for each in words if isinstance(each, ast.Name) and each.id in names)


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    keyword = next((word.value for word in call.keywords if word.arg == name), None)
    return keyword or (call.args[position] if position < len(call.args) else None)


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
