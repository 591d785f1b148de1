"""The shipped units: the exposure that systemd computes for each, and whether each can still do its work."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from aliquot.cdi import spec_files
from aliquot.kubernetes.manifests.workload import AGENT_GRACE_S
from support.processes import until
from system.systemd.conftest import SystemdHost

ROOT = Path(__file__).resolve().parents[3]
UNITS = {path.stem: path for path in sorted((ROOT / "deploy").glob("*/*.service"))}

GPUS = {"SYS_ADMIN", "SYS_PTRACE", "MKNOD"}
CHANGES = GPUS | {"SYS_MODULE"}
MAY: dict[str, tuple[set[str], set[str], set[str]]] = {
    # unit: capabilities, writable folders besides /dev, /proc and its own, acts that are refused
    "aliquot-restore": (CHANGES, {"/sys", "/proc/sys"}, {"internet"}),
    "aliquot-metrics": (GPUS, set(), set()),
    "aliquot-textfile": (GPUS, set(), set()),
    "aliquot-slurm-node": (GPUS, {"/", "/var", "/sys/fs/cgroup"}, set()),
    "aliquot-slurm-continue": (
        CHANGES | {"KILL"},
        {"/", "/etc", "/var", "/sys", "/sys/fs/cgroup", "/proc/sys"},
        set(),
    ),
    "aliquot-slurm-dcgm": ({"SYS_PTRACE"}, set(), {"internet", "mknod", "state"}),
    "aliquot-slurm": (set(), set(), {"mknod", "other-user"}),
}


def test_every_unit_is_looked_at() -> None:
    assert set(MAY) == set(UNITS)


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_exposed_less_than_5(name: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze (apt-get install systemd)")
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=49", "--no-pager", str(UNITS[name])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("systemd-analyze is older than 250")
    assert "Overall exposure level" in done.stdout, done.stderr
    assert done.returncode == 0, done.stdout[-200:]


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_aliquot_by_its_path(name: str) -> None:
    # An environment file may set PATH, so the unit does not use it.
    (start,) = re.findall(r"(?m)^ExecStart=(\S+)", UNITS[name].read_text())
    assert start == "/usr/local/bin/aliquot"


@pytest.mark.parametrize("name", [name for name, (may, *_) in MAY.items() if may >= CHANGES])
def test_a_unit_that_changes_gpus_outlasts_the_longest_driver_call(name: str) -> None:
    # The same as for an agent's pod: systemd kills what has not ended by then.
    (stop,) = re.findall(r"(?m)^TimeoutStopSec=(\d+)$", UNITS[name].read_text())
    assert int(stop) >= AGENT_GRACE_S


@pytest.mark.parametrize("name", ["aliquot-restore", "aliquot-slurm-continue"])
def test_a_unit_that_changes_gpus_can_update_their_cdi_files(name: str) -> None:
    # With ProtectSystem=strict only the named directories are writable. A file in /etc/cdi outlives a reboot.
    text = UNITS[name].read_text()
    writable = {path for line in re.findall(r"(?m)^ReadWritePaths=(.*)$", text) for path in line.split()}
    assert "\nProtectSystem=strict\n" not in text or {f"-{path}" for path in spec_files.DIRECTORIES} <= writable


def run(host: SystemdHost, name: str) -> dict[str, Any]:
    """Start the shipped unit with the probe as its program and return the probe's output."""
    folder = host.units.parent
    printed = folder / f"{name}.json"
    shutil.copy(UNITS[name], host.units)
    (host.units / f"{name}.service.d").mkdir()
    (host.units / f"{name}.service.d/test.conf").write_text(
        "[Unit]\nDefaultDependencies=no\nConditionPathExists=\nConditionDirectoryNotEmpty=\nConditionPathIsDirectory=\n"
        f"[Service]\nExecStartPre=\nStandardOutput=file:{printed}\nStandardError=file:{folder}/{name}.err\nRestart=no\n"
        "RemainAfterExit=no\nReadWritePaths=\n"
    )
    host.systemctl("daemon-reload")
    host.systemctl("start", f"{name}.service", check=False)
    until(lambda: host.state(f"{name}.service") in ("inactive", "failed"), f"{name} does not end", 60)
    assert printed.read_text(), (host.systemctl("status", f"{name}.service", check=False), host.log.read_text()[-2000:])
    found: dict[str, Any] = json.loads(printed.read_text())
    return found


def install(host: SystemdHost) -> None:
    """Install Aliquot into /mnt and /usr/local/bin of the host's own mount namespace."""
    python = Path(sys.base_prefix, f"bin/python{sys.version_info.major}.{sys.version_info.minor}")
    places = {sys.base_prefix: "python", str(ROOT / "src"): "src", sysconfig.get_path("purelib"): "site"}
    script = ["set -e", *(f"mount -t tmpfs tmpfs {path}" for path in ("/mnt", "/usr/local/bin", "/var/lib"))]
    for source, place in places.items():
        script += [f"mkdir -p /mnt/{place}", f"mount --rbind {source} /mnt/{place}"]
    script += [f"cp {Path(__file__).with_name('probe.py')} /mnt/probe.py"]
    start = f'#!/bin/sh\\nexec /mnt/python/bin/{python.name} -B /mnt/probe.py "$@"\\n'
    script += [f"printf '{start}' > /usr/local/bin/aliquot", "chmod 755 /usr/local/bin/aliquot"]
    subprocess.run(["nsenter", "-t", str(host.pid), "-m", "sh", "-c", "\n".join(script)], check=True)


def test_restrictions_leave_each_unit_what_its_work_needs(systemd: SystemdHost) -> None:
    install(systemd)
    environment = "Environment=PROBE=1\nUser=65534\nExecStart=/bin/sleep 1000\n"
    (systemd.units / "other.service").write_text(f"[Unit]\nDefaultDependencies=no\n[Service]\n{environment}")
    systemd.systemctl("daemon-reload")
    systemd.start("other.service")
    path = "/mnt/src:/mnt/site"
    systemd.systemctl("set-environment", f"PYTHONPATH={path}")
    for name, (capabilities, folders, refused) in MAY.items():
        found = run(systemd, name)
        assert f"aliquot {' '.join(found['argv'])}" in UNITS[name].read_text()
        assert set(found["capabilities"]) == capabilities, name
        # ProtectSystem=strict leaves /run writable if it is a separate mount; the controller does not use it.
        spare = {"lock"} if name == "aliquot-slurm" else set()
        assert set(found["refused"]) - spare == refused, (name, found["refused"])
        assert set(found["writable"]) <= folders, name
        assert found["homes"] == ("visible" if name in ("aliquot-slurm", "aliquot-slurm-continue") else "hidden"), name
        if name in ("aliquot-restore", "aliquot-slurm-continue"):
            assert {"/sys"} & folders <= set(found["writable"]), name
