"""``ansible-playbook`` with deploy/ansible inside a bed's machine, on hosts that are simulated nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from support import forkserver

from .applying import Host, restart
from .bed import Bed, Ran, until

FOLDER = Path(__file__).resolve().parents[3] / "deploy/ansible"
LAYOUT = {
    "version": "aliquot/v1",
    "configs": {"small": [{"gpus": "all", "mig": {"1g.5gb": 7}}], "big": [{"gpus": "all", "mig": {"3g.20gb": 2}}]},
}


def missing() -> str:
    """Return why no playbook can run here, or "" if one can."""
    return "" if program() else "ansible-playbook is not here: pip install ansible-core"


def program() -> str:
    return shutil.which("ansible-playbook", path=os.path.dirname(sys.executable)) or ""


_MODULES = """#!/bin/sh
[ $# = 0 ] || exec {python} "$@"
PYTHONPATH="$PYTHONPATH:{tests}" exec {launcher} -m system.slurm.module
"""


def _interpreter(bed: Bed) -> str:
    program = bed.bin / "python-of-modules"
    text = _MODULES.format(python=sys.executable, tests=forkserver.TESTS, launcher=forkserver.python())
    program.write_text(text)
    program.chmod(0o755)
    return str(program)


def _at_a_terminal(bed: Bed) -> str:
    """Write a program that runs changes with a terminal as stdin, as ``ssh -tt`` does. The terminal never answers."""
    script = bed.bin / "aliquot-at-a-terminal"
    script.write_text(f'#!/bin/sh\n[ "$2" != apply ] || exec </dev/ptmx\nexec {bed.bin}/aliquot "$@"\n')
    script.chmod(0o755)
    return str(script)


class Play:
    """An inventory and the playbook. ``variables`` apply to all hosts, ``own`` to single hosts."""

    def __init__(self, bed: Bed, *hosts: Host, constrained: bool = False, **variables: Any) -> None:
        self.bed = bed
        self.own: dict[str, dict[str, Any]] = {h.name: self._of(h) for h in hosts}
        self.variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": _interpreter(bed),
            "aliquot_become": False,
            "aliquot_install": False,
            "aliquot_program": _at_a_terminal(bed),
            "aliquot_layout": LAYOUT,
            "aliquot_layout_path": str(bed.folder / "aliquot-etc/layout.yaml"),
            "aliquot_scripts": str(bed.folder / "scripts"),
            "aliquot_conf_dir": str(bed.etc),
            "aliquot_timeout": 60,
            "aliquot_units": False,
            # Without control groups, a bed has errors that every check reports.
            "aliquot_constrain_devices": constrained,
            "aliquot_check": constrained,
        } | variables

    def _of(self, host: Host) -> dict[str, Any]:
        return {"aliquot_environment": host.env, "aliquot_apply_options": host.how[2:]}

    def run(self, *words: str) -> Ran:
        inventory = self.bed.folder / "inventory.json"
        groups = {
            "slurm_gpu_nodes": {"hosts": self.own},
            "slurm_controllers": {"hosts": {next(iter(self.own)): {}}},
        }
        inventory.write_text(json.dumps({"all": {"vars": self.variables, "children": groups}}))
        place = self.bed.folder / "ansible"
        env = {
            "ANSIBLE_HOME": str(place),
            "ANSIBLE_LOCAL_TEMP": str(place / "local"),
            "ANSIBLE_REMOTE_TEMP": str(place / "remote"),
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_NOCOWS": "1",
            "LC_ALL": "C.UTF-8",
        }
        playbook = str(FOLDER / "aliquot-slurm.yml")
        return self.bed.run(program(), "-i", str(inventory), playbook, *words, env=env, timeout=240)

    def ok(self, *words: str) -> dict[str, dict[str, int]]:
        """Run the playbook, which must succeed, and return the recap."""
        done = self.run(*words)
        assert done.code == 0, done.out + done.err
        return recap(done)


def recap(done: Ran) -> dict[str, dict[str, int]]:
    """Return Ansible's counts by host: ``ok``, ``changed``, ``failed`` and others."""
    rows = re.findall(r"^(\S+)\s+: (ok=.*)$", done.out, re.MULTILINE)
    return {name: {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", counts)} for name, counts in rows}


def two(bed: Bed, *, constrain: bool = False) -> tuple[Host, Host]:
    """Start slurmctld with two hosts of two whole A100 each and their lines in slurm.conf. Nothing runs on the hosts
    yet. With ``constrain`` Slurm could fence devices with control groups, but is not configured to.
    """
    lines = [bed.node(name, "CPUs=2 RealMemory=1000 Gres=gpu:a100:2") for name in ("n1", "n2")]
    bed.conf("\n".join([*lines, "PartitionName=all Nodes=ALL Default=YES"]), constrain=constrain)
    fence = bed.etc / "cgroup.conf"
    fence.write_text(fence.read_text().replace("ConstrainDevices=yes\n", ""))
    restart(bed)
    bed.ok("sh", "-c", "slurmctld >/dev/null 2>&1")
    until(lambda: "UP" in bed.run("scontrol", "ping").out, "slurmctld does not answer")
    return Host(bed, "n1"), Host(bed, "n2")
