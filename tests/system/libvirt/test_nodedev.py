"""``aliquot libvirt nodedev`` with real libvirtd and mdevctl, over the /sys of a simulated node."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from aliquot.cli.main import main
from aliquot.libvirt.connect import open_libvirt
from system.cli import hints

from . import bed as beds
from . import conftest
from .bed import Bed
from .domains import domain

pytestmark = pytest.mark.slow

Report = Callable[..., dict[str, Any]]


GPU = "0000:01:00.0"


@pytest.fixture(scope="module")
def shared() -> Iterator[Bed]:
    if reason := beds.missing():
        pytest.skip(reason)
    with beds.made("a2:mdev", conftest.CACHE) as one:
        yield one


@pytest.fixture
def bed(shared: Bed) -> Iterator[Bed]:
    """Yield the module's bed, and afterwards remove VMs, vGPUs and definitions, even if the test fails."""
    yield shared
    for name in shared.virsh("list", "--all", "--name").split():
        shared.virsh("undefine", name)
    for line in shared.run("mdevctl", "list", "--defined").stdout.split("\n"):
        if line.strip():
            shared.run("mdevctl", "undefine", "--uuid", line.split()[0])
    shared.node.reboot()
    # libvirt learns of both through events. The next test's vGPUs have the same UUIDs.
    shared.until(lambda: not shared.virsh("nodedev-list", "--cap", "mdev", "--all").split())


@pytest.fixture
def aliquot(bed: Bed, through: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Report:
    """Return a function that runs a verb on the bed's node and libvirtd and returns its document."""
    for name in [n for n in os.environ if n.startswith("ALIQUOT_") and n != "ALIQUOT_CACHE_DIR"]:
        monkeypatch.delenv(name)
    settings = {"STATE_DIR": bed.node.state_dir, "BACKEND": "direct", "SIM": bed.node.name, "LIBVIRT": through}
    for name, value in settings.items():
        monkeypatch.setenv(f"ALIQUOT_{name}", value)
    monkeypatch.setenv("LIBVIRT_DEFAULT_URI", bed.uri)

    def call(line: str, code: int = 0) -> dict[str, Any]:
        capsys.readouterr()
        came = main([*shlex.split(line), "-o", "json"])
        out, err = capsys.readouterr()
        hints.check_output(out, err)
        assert came == code, err
        # Notes come before an error on the same stream.
        return msgspec.json.decode(out or err[err.index("{") :], type=dict[str, Any])

    return call


def states(document: dict[str, Any]) -> dict[str, tuple[bool, bool, bool]]:
    return {m["uuid"]: (m["active"], m["persistent"], m["autostart"]) for m in document["mdevs"]}


def test_mdevs_that_come_back(bed: Bed, aliquot: Report) -> None:
    aliquot(f"apply --gpu {GPU} --vgpu A2-4Q*2")
    bed.until(lambda: len(bed.virsh("nodedev-list", "--cap", "mdev").split()) == 2)
    listed = states(aliquot("libvirt nodedev list"))
    assert list(listed.values()) == [(True, False, False)] * 2
    first, second = listed
    aliquot(f"libvirt nodedev define {first}")
    # libvirt watches mdevctl's folder for changes.
    bed.until(lambda: states(aliquot("libvirt nodedev list"))[first] == (True, True, False))
    aliquot("libvirt nodedev autostart")
    kept = {first: (True, True, True), second: (True, True, True)}
    bed.until(lambda: states(aliquot("libvirt nodedev list")) == kept)
    answer = bed.run("mdevctl", "list", "--defined").stdout
    assert answer.count("auto") == 2
    assert first in answer
    assert second in answer
    _reboot(bed)
    lost = {first: (False, True, True), second: (False, True, True)}
    bed.until(lambda: states(aliquot("libvirt nodedev list")) == lost)
    bed.enable(GPU)
    aliquot("libvirt nodedev start")
    assert set(bed.files.names("/sys/bus/mdev/devices")) == {first, second}
    (gpu,) = aliquot("vgpu list")["gpus"]
    assert [(v["uuid"], v["type"]) for v in gpu["vgpus"]] == [(u, "NVIDIA A2-4Q") for u in (first, second)]
    aliquot("libvirt nodedev undefine")
    assert bed.run("mdevctl", "list", "--defined").stdout.strip() == ""
    aliquot(f"vgpu disable {GPU}")


def _reboot(bed: Bed) -> None:
    """Restart the simulated host. libvirtd, whose own state survives a real reboot, sees what is left."""
    bed.node.reboot()
    bed.until(lambda: bed.virsh("nodedev-list", "--cap", "mdev").split() == [])


def test_attach_with_autostart(bed: Bed, aliquot: Report, tmp_path: Any) -> None:
    aliquot(f"apply --gpu {GPU} --vgpu A2-8Q*2")
    bed.until(lambda: len(bed.virsh("nodedev-list", "--cap", "mdev").split()) == 2)
    path = tmp_path / "vm.xml"
    path.write_text(domain("win11"))
    bed.virsh("define", str(path))
    done = aliquot("libvirt attach win11 --vgpu A2-8Q --autostart")
    (device,) = done["devices"]
    bed.until(lambda: states(aliquot("libvirt nodedev list"))[device["uuid"]] == (True, True, True))
    assert aliquot("libvirt check win11")["fine"] is True
    started = aliquot("libvirt attach win11 --vgpu A2-8Q --start", code=20)
    assert started["code"] in ("NO_VFIO", "LIBVIRT", "HELD")
    with open_libvirt(bed.uri) as libvirt:
        assert not any(machine.running for machine in libvirt.domains())


def test_a_libvirt_without_mdevctl(bed: Bed, aliquot: Report) -> None:
    aliquot(f"apply --gpu {GPU} --vgpu A2-4Q")
    program = shutil.which("mdevctl") or "/usr/sbin/mdevctl"
    inside = ["nsenter", "-t", str(bed.pid), "-m", "-p", "--"]  # umount reads /proc of its own namespace
    subprocess.run([*inside, "mount", "--bind", "/dev/null", program], check=True)
    try:
        refused = aliquot("libvirt nodedev define", code=20)
    finally:
        subprocess.run([*inside, "umount", program], check=True)
    assert refused["code"] == "NO_MDEVCTL"
    assert "restore --boot" in refused["next"]
