"""What Slurm itself makes of files before they are put in place: ``slurmd -G`` on a scratch copy.

slurmctld takes a malformed count without a word (``scontrol reconfigure`` exits 0), so the list that slurmd parsed is
held against what was meant. Device nodes that are not there are stood in for: slurmd would not go on without them.
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
from aliquot.slurm.files import fence
from aliquot.slurm.files.job_devices import OfferedDevices
from aliquot.slurm.files.node_line import NAME

if TYPE_CHECKING:
    from aliquot.foundation.bounded_process import ProcessResult

BOUND_S = 30.0
_LISTED = re.compile(r"Gres Name=(\S+) Type=(\S+) Count=(\d+) .*?File=(\S+)")
_DEVICE = re.compile(r"(?<=[=,])/[^\s,]*nvidia[^\s,]*")
_HARMLESS = (
    "not a valid character or block device",  # our own stand-ins
    "Domain socket directory",  # the spool folder of a daemon that does not run
    "xcpuinfo_hwloc_topo_load",
)


_PLUGINS = ("disabled", "cgroup/v1", "cgroup/v2")
"""Of which 22.05 does not know the first."""


class ParsedFiles(msgspec.Struct, frozen=True):
    """What slurmd made of the files. ``devices`` are type, count and device files in its own order; ``missing`` the
    device nodes that are not on this machine.
    """

    devices: tuple[tuple[str, int, tuple[str, ...]], ...]
    errors: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
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
    """Files by name (slurm.conf, gres.conf ...) as slurmd would read them for a node. ``slurmd`` is its command line.
    With ``real`` nothing is stood in for.

    Raises NoSlurmError where there is no slurmd, or it does not come to an end.
    """
    # Of everyone's to enter: slurmd may run in another root, as another user.
    with tempfile.TemporaryDirectory(prefix="aliquot-slurm-") as folder:
        os.chmod(folder, 0o755)
        texts = dict(files)
        missing = sorted({p for p in _device_files(texts.get("gres.conf", "")) if not os.path.exists(p)})
        if not real:
            texts["gres.conf"] = _with_stand_ins(texts.get("gres.conf", ""), missing, folder)
        for name, text in texts.items():
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        return _read(_listing(slurmd, node, folder), folder, tuple(missing))


def _listing(slurmd: Sequence[str], node: str, folder: str) -> ProcessResult:
    """Return what slurmd lists. slurmd exits, 22.05 without a message, if the control groups that cgroup.conf names do
    not exist yet, or are not those of the host. They do not matter for the list: try the other plugins then.
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
    """A slurm.conf that says of a node what matters here and nothing else."""
    return (
        f"ClusterName=aliquot-check\nSlurmctldHost=localhost\nAuthType=auth/none\nCredType=cred/none\n"
        f"GresTypes={NAME},{fence.NAME}\nProctrackType=proctrack/linuxproc\n"
        f"TaskPlugin=task/none\nSelectType=select/cons_tres\nMpiDefault=none\nSlurmdParameters=config_overrides\n"
        f"NodeName={node} NodeHostname=localhost CPUs=1 {f'Gres={gres}' if gres else ''}\n"
    )


def differences(expected: OfferedDevices, parsed: ParsedFiles, configured: str) -> tuple[str, ...]:
    """Where what slurmd read, or the value of ``Gres=`` says, is not what was meant: a sentence each. slurmd lists
    gres.conf's devices whatever count ``Gres=`` has for them, and takes a count that is no number.
    """
    wrong = [*parsed.errors, *_miscounted(expected, configured)]
    if parsed.failed and not wrong:
        wrong.append("slurmd refused the files without a word")
    for kind in dict.fromkeys((*expected.counts, *parsed.counts)):
        ours, theirs = expected.counts.get(kind, 0), parsed.counts.get(kind, 0)
        if ours != theirs:
            wrong.append(f"slurmd reads {theirs} of type {kind}, not {ours}")
    expected_devices = {(d.type, frozenset(d.files)) for d in expected.devices}
    for kind, _, paths in parsed.devices:
        if expected.counts.get(kind) == parsed.counts.get(kind) and (kind, frozenset(paths)) not in expected_devices:
            wrong.append(f"slurmd reads other device files for {kind}: {', '.join(paths)}")
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
        f"Gres= says {counts.get(kind, 0)} of type {kind}, and gres.conf {expected.counts.get(kind, 0)}"
        for kind in kinds
        if counts.get(kind, 0) != expected.counts.get(kind, 0)
    )


def out_of_order(expected: OfferedDevices, parsed: ParsedFiles) -> bool:
    """Whether slurmd numbers the devices otherwise: then SLURM_STEP_GPUS means other ones than we think."""
    return [frozenset(d.files) for d in expected.devices] != [frozenset(paths) for _, _, paths in parsed.devices]


def _device_files(gres: str) -> Iterator[str]:
    for line in gres.splitlines():
        if not line.lstrip().startswith("#"):
            yield from _DEVICE.findall(line)


def _with_stand_ins(gres: str, missing: Iterable[str], folder: str) -> str:
    """The text with missing device nodes replaced by empty files of the same names."""
    absent = set(missing)
    for path in absent:
        os.makedirs(os.path.dirname(folder + path), exist_ok=True)
        with open(folder + path, "w"):
            pass
    return _DEVICE.sub(lambda found: folder + found[0] if found[0] in absent else found[0], gres)


def _run(slurmd: Sequence[str], node: str, folder: str) -> ProcessResult:
    from aliquot.foundation import bounded_process

    conf = os.path.join(folder, "slurm.conf")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
    try:
        environment |= {"SLURM_CONF": conf, "LC_ALL": "C.UTF-8"}
        return bounded_process.run([*slurmd, "-G", "-N", node, "-f", conf], BOUND_S, env=environment)
    except FileNotFoundError as absent:
        raise NoSlurmError(
            f"{slurmd[0]} is not on this host: the files cannot be checked here",
            next_step="apt-get install slurmd, or dnf install slurm-slurmd",
        ) from absent
    except OSError as failure:  # a TimeoutError too
        raise NoSlurmError(f"{slurmd[0]} -G did not come to an end: {failure}", next_step="slurmd -V") from failure


def _read(done: ProcessResult, folder: str, missing: tuple[str, ...]) -> ParsedFiles:
    output = (done.err + done.out).replace(folder + "/dev", "/dev").replace(folder + "/", "")
    if done.code and "cannot create auth context" in output:
        raise NoSlurmError(
            "slurmd -G cannot be asked: it has no auth/none, or the files name a way to authenticate that does not "
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
    """The GPUs in what ``slurmd -G`` prints: type, count and device files."""
    found = (_LISTED.search(line) for line in output.splitlines())
    mine = (match for match in found if match and match[1] == NAME)
    return tuple(("" if m[2] == "(null)" else m[2], int(m[3]), tuple(m[4].split(","))) for m in mine)
