"""Printed commands remove nothing beyond the node, GPU or object that their message is about.

The tests collect every text in the source that contains such a command. The message must name the removed object (a
placeholder in the source). A command removes one object, of a kind that belongs to a single device or Slurm record.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .test_next import SOURCE, is_structured, texts

HOLE = "\0"
"""Marks a placeholder."""
_TAKES = re.compile(
    r"\b(?:kubectl(?: -n \S+)? (?:delete|drain|cordon|scale|replace|evict)\b"
    r"|helm (?:uninstall|delete)\b"
    r"|scontrol (?:delete|reboot|update \S+ (?:state=(?!resume)|nodes=(?!\+)))|scancel\b"
    r"|systemctl (?:stop|disable|mask|kill|restart docker)\b"
    r"|rm -|rm \S|rmmod\b|modprobe -r|pkill\b|killall\b|kill \S"
    r"|virsh (?:destroy|undefine|detach)|(?:docker|podman) (?:rm|kill|stop|system)\b"
    r"|nvidia-smi\b[^|;]*(?:reset|-r\b|-d[gc]i)"
    r"|aliquot (?:vgpu|passthrough) disable\b|aliquot drain\b|aliquot sim stop\b|aliquot libvirt detach\b)[^|;(\n]*"
)
_DEVICE_KINDS = "pcideviceclaim|usbdeviceclaim|sriovnetworkdevice|sriovgpudevice|vgpudevice|migconfiguration"
_ONE = (
    rf"kubectl delete (?:{_DEVICE_KINDS}|resourceslice) {HOLE}",
    rf"scontrol delete (?:nodename|reservationname)={HOLE}",
    rf"scontrol update reservationname={HOLE} nodes={HOLE}",
    rf"scontrol update nodename={HOLE} state=(?:drain|power_down)\b.*",
    rf"scontrol reboot ASAP nextstate=RESUME reason='[^']*' {HOLE}",
    rf"rm {HOLE}(?:, or choose a folder that only you can write in| && {HOLE})?",
    rf"aliquot libvirt detach {HOLE} {HOLE}",
    r"nvidia-smi -r -i \{gpu\}",
    rf"nvidia-smi -r -i {HOLE}",
    rf"aliquot (?:vgpu|passthrough) disable {HOLE}",
    rf"aliquot sim stop {HOLE}",
)
REASONED = {
    "aliquot sim stop --all": "the message is about the simulator's server as a whole, which is of another version",
    "aliquot sim stop --help": "it prints help",
    "kill $p": "the message is about the slurmd that the file names",
    "systemctl restart docker": "the message is about the daemon, and says what a restart ends",
    "systemctl disable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service": "the message is about their file",
}


def filled(node: ast.AST) -> Iterator[str]:
    """Yield the texts of an expression, with HOLE for each inserted value."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(p.value) if isinstance(p, ast.Constant) else HOLE for p in node.values)
    elif isinstance(node, ast.Call):
        yield "".join("".join(filled(p)) if isinstance(p, ast.Constant | ast.JoinedStr) else HOLE for p in node.args)
    else:
        yield from texts(node)


def taking(text: str) -> list[str]:
    """Return the commands in a text that remove something."""
    return [match.group().strip(" .,:'`") for match in _TAKES.finditer(text)]


def allowed(command: str) -> bool:
    return command in REASONED or any(re.fullmatch(each, command) for each in _ONE)


def printed(path: Path) -> Iterator[tuple[int, str]]:
    """Yield every text of a file except docstrings. Joined strings are kept whole, so that each part keeps its
    placeholders.
    """
    tree = ast.parse(path.read_text())
    inside = {id(part) for node in ast.walk(tree) for part in _parts(node)}
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant | ast.JoinedStr | ast.Call) or id(node) in inside | documented:
            continue
        if isinstance(node, ast.Constant) or _parts(node):
            for text in filled(node):
                yield node.lineno, text


def _parts(node: ast.AST) -> list[ast.expr]:
    """Return the parts of a joined string or of a structured text."""
    if isinstance(node, ast.JoinedStr):
        return node.values
    return node.args if isinstance(node, ast.Call) and is_structured(node) else []


def files() -> list[Path]:
    """Return the source files whose texts are checked.

    Excluded are the simulated driver programs, which print what NVIDIA's print, the examples in help, and patterns that
    are searched in third-party scripts.
    """
    skipped = (
        "sim/tools/",
        "slurm/check/scripts",
        "cli/tables/",
        "cli/slurm/table",
        "cli/libvirt/table",
        "cli/containers/docker_table",
    )
    found = [(path, path.relative_to(SOURCE).as_posix()) for path in sorted(SOURCE.rglob("*.py"))]
    return [path for path, name in found if not name.startswith(skipped)]


def test_what_is_removed_is_what_the_message_is_about() -> None:
    found = [
        (f"{path.relative_to(SOURCE)}:{line}", command)
        for path in files()
        for line, text in printed(path)
        for command in taking(text)
    ]
    assert len(found) > 15
    assert not [f"{place}: {command.replace(HOLE, '{}')}" for place, command in found if not allowed(command)]
    assert {command for _, command in found} >= REASONED.keys(), "a reason without its command"


@pytest.mark.parametrize(
    "command",
    [
        "kubectl -n harvester-system delete daemonset harvester-pcidevices-controller",
        f"kubectl delete pods --all -n {HOLE}",
        f"kubectl delete vgpudevice -l nodename={HOLE}",
        f"kubectl drain {HOLE} --force",
        "helm uninstall aliquot -n harvester-system",
        "systemctl stop slurmctld",
        f"rm -r {HOLE}",
        "aliquot vgpu disable --all",
    ],
)
def test_what_takes_more_would_be_found(command: str) -> None:
    (found,) = taking(f"something is in the way | next: {command}")
    assert not allowed(found)
