"""Validation of files by Slurm itself before they are installed: ``slurmd -G`` on a temporary copy.

slurmctld silently accepts a malformed count (``scontrol reconfigure`` exits 0), so the list that slurmd parsed is
compared with the intended one. Files stand in for missing device nodes, because slurmd stops without them.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from aliquot.slurm.client import gres_text as grestext
from aliquot.slurm.client.errors import NoSlurmError
from aliquot.slurm.client.gres_text import GresError
from aliquot.slurm.conf.hosts import expand_leniently
from aliquot.slurm.files import fence
from aliquot.slurm.files.job_devices import OfferedDevices
from aliquot.slurm.files.node_line import NAME
from aliquot.slurm.files.slot_board import is_marker

if TYPE_CHECKING:
    from aliquot.foundation.bounded_process import ProcessResult

BOUND_S = 30.0
_LISTED = re.compile(r"Gres Name=(\S+) Type=(\S+) Count=(\d+) .*?File=(\S+)")
_DEVICE = re.compile(r"(?<=[=,])/[^\s,]*(?:nvidia|/slot)(?:\[[^\]]*\]|[^\s,\[])*")
"""A device node of gres.conf, or a host list of them (``nvidia-cap[1-2,7]``)."""
_OUTER_COMMA = re.compile(r",(?![^\[]*\])")
_HARMLESS = (
    "not a valid character or block device",  # our own stand-ins
    "Domain socket directory",  # the spool folder of a daemon that does not run
    "xcpuinfo_hwloc_topo_load",
)


_PLUGINS = ("disabled", "cgroup/v1", "cgroup/v2")
"""22.05 does not know the first."""


class ParsedFiles(msgspec.Struct, frozen=True):
    """The files as slurmd parsed them."""

    devices: tuple[tuple[str, int, tuple[str, ...]], ...]
    """Type, count and device files, in slurmd's order."""
    errors: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """The device nodes that this host lacks."""
    failed: bool = False

    @property
    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for kind, count, _ in self.devices:
            found[kind] = found.get(kind, 0) + count
        return found


def parse(
    files: Mapping[str, str], node: str, slurmd: Sequence[str] = ("slurmd",), *, real: bool = False
) -> ParsedFiles:
    """Parse files (by name: slurm.conf, gres.conf ...) with slurmd for a node.

    ``slurmd`` is its command line. With ``real``, missing device nodes are not replaced. Raises NoSlurmError if slurmd
    is not installed or does not end in time.
    """
    # Readable for everyone, because slurmd may run in another root directory as another user.
    with tempfile.TemporaryDirectory(prefix="aliquot-slurm-") as folder:
        os.chmod(folder, 0o755)
        texts = dict(files)
        missing = sorted({p for p in _device_files(texts.get("gres.conf", "")) if not os.path.exists(p)})
        if not real and missing:
            texts["gres.conf"] = _with_stand_ins(texts["gres.conf"], missing, folder)
        for name, text in texts.items():
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        return _read(_listing(slurmd, node, folder), folder, tuple(missing))


def _listing(slurmd: Sequence[str], node: str, folder: str) -> ProcessResult:
    """Return the output of slurmd.

    slurmd fails (22.05 without a message) if the control groups of cgroup.conf do not exist, or do not belong to the
    host. They do not matter here, so the other plugins are tried.
    """
    first = done = _run(slurmd, node, folder)
    for guess in _PLUGINS:
        if not done.code:
            return done
        with open(os.path.join(folder, "cgroup.conf"), "w") as file:
            file.write(f"CgroupPlugin={guess}\n")
        done = _run(slurmd, node, folder)
    return first if done.code else done


def minimal(node: str, gres: str) -> str:
    """Return a minimal slurm.conf for validating a node's GRES."""
    return (
        f"ClusterName=aliquot-check\nSlurmctldHost=localhost\nAuthType=auth/none\nCredType=cred/none\n"
        f"GresTypes={NAME},{fence.NAME}\nProctrackType=proctrack/linuxproc\n"
        f"TaskPlugin=task/none\nSelectType=select/cons_tres\nMpiDefault=none\nSlurmdParameters=config_overrides\n"
        f"NodeName={node} NodeHostname=localhost CPUs=1 {f'Gres={gres}' if gres else ''}\n"
    )


def differences(expected: OfferedDevices, parsed: ParsedFiles, configured: str) -> tuple[str, ...]:
    """Return the differences between the expected devices, slurmd's list and the value of ``Gres=``, as sentences.

    ``Gres=`` is checked separately: slurmd lists the devices of gres.conf regardless of it, and accepts a count that is
    not a number.
    """
    wrong = [*parsed.errors, *_miscounted(expected, configured)]
    if parsed.failed and not wrong:
        wrong.append("slurmd refused the files without a message")
    for kind in dict.fromkeys((*expected.counts, *parsed.counts)):
        ours, theirs = expected.counts.get(kind, 0), parsed.counts.get(kind, 0)
        if ours != theirs:
            wrong.append(f"slurmd reads {theirs} of type {kind}, not {ours}")
    expected_devices = {(d.type, frozenset(d.files)) for d in expected.devices}
    for kind, _, paths in parsed.devices:
        if expected.counts.get(kind) == parsed.counts.get(kind) and (kind, frozenset(paths)) not in expected_devices:
            wrong.append(f"slurmd reads unexpected device files for {kind}: {', '.join(paths)}")
    return tuple(wrong)


def _miscounted(expected: OfferedDevices, configured: str) -> tuple[str, ...]:
    try:
        entries = grestext.parse_configured(configured)
    except GresError as error:
        return (error.brief,)
    counts: dict[str, int] = {}
    for each in entries:
        if each.name == NAME:
            counts[each.type] = counts.get(each.type, 0) + each.count
    kinds = dict.fromkeys((*expected.counts, *counts))
    return tuple(
        f"Gres= has {counts.get(kind, 0)} of type {kind}, but gres.conf has {expected.counts.get(kind, 0)}"
        for kind in kinds
        if counts.get(kind, 0) != expected.counts.get(kind, 0)
    )


def out_of_order(expected: OfferedDevices, parsed: ParsedFiles) -> bool:
    """Report whether slurmd numbers the devices differently, so that SLURM_STEP_GPUS would mean other devices."""
    return [frozenset(d.files) for d in expected.devices] != [frozenset(paths) for _, _, paths in parsed.devices]


def _device_files(gres: str) -> Iterator[str]:
    for line in gres.splitlines():
        if not line.lstrip().startswith("#"):
            for word in _DEVICE.findall(line):
                yield from expand_leniently(word)


def _with_stand_ins(gres: str, missing: Iterable[str], folder: str) -> str:
    """Return gres.conf with empty files in place of missing device nodes, and create these files.

    The markers of a slot board are replaced all or none, because slurmd sorts by their paths.
    """
    absent = set(missing)
    markers = any(is_marker(path) for path in absent)

    def replaced(found: re.Match[str]) -> str:
        paths = expand_leniently(found[0])
        if not absent.intersection(paths) and not (markers and is_marker(paths[0])):
            return found[0]
        for path in paths:
            os.makedirs(os.path.dirname(folder + path), exist_ok=True)
            with open(folder + path, "w"):
                pass
        return folder + found[0]

    return _DEVICE.sub(replaced, gres)


def _run(slurmd: Sequence[str], node: str, folder: str) -> ProcessResult:
    from aliquot.foundation import bounded_process

    conf = os.path.join(folder, "slurm.conf")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
    try:
        environment |= {"SLURM_CONF": conf, "LC_ALL": "C.UTF-8"}
        return bounded_process.run([*slurmd, "-G", "-N", node, "-f", conf], BOUND_S, env=environment)
    except FileNotFoundError as absent:
        raise NoSlurmError(
            f"{slurmd[0]} is not installed on this host, so the files cannot be validated",
            next_step="apt-get install slurmd, or dnf install slurm-slurmd",
        ) from absent
    except OSError as failure:  # a TimeoutError too
        raise NoSlurmError(f"{slurmd[0]} -G failed: {failure}", next_step="slurmd -V") from failure


def _read(done: ProcessResult, folder: str, missing: tuple[str, ...]) -> ParsedFiles:
    output = (done.err + done.out).replace(folder + "/dev", "/dev").replace(folder + "/", "")
    if done.code and "cannot create auth context" in output:
        raise NoSlurmError(
            "slurmd -G cannot validate the files: it has no auth/none, or the authentication of the files does not "
            "work here",
            details=tuple(output.strip().splitlines()[-3:]),
            next_step="slurmd -G",
        )
    errors = [
        re.sub(r"^slurmd\S*: ", "slurmd: ", line.strip())
        for line in output.splitlines()
        if re.search(r"\b(error|fatal):", line) and not any(each in line for each in _HARMLESS)
    ]
    return ParsedFiles(listed_devices(output), tuple(dict.fromkeys(errors)), missing, done.code != 0)


def listed_devices(output: str) -> tuple[tuple[str, int, tuple[str, ...]], ...]:
    """Parse the GPUs in the output of ``slurmd -G``: type, count and device files."""
    found = (_LISTED.search(line) for line in output.splitlines())
    mine = (match for match in found if match and match[1] == NAME)
    return tuple(("" if m[2] == "(null)" else m[2], int(m[3]), tuple(_OUTER_COMMA.split(m[4]))) for m in mine)
