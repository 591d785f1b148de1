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

from aliquot.backends.connect import connect
from aliquot.cli import main
from aliquot.integrations.libvirt.holders import holders
from aliquot.integrations.libvirt.open import opened
from cli import hints

from . import bed as beds
from . import conftest
from .bed import Bed
from .domains import domain

pytestmark = pytest.mark.slow

Say = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    if reason := beds.missing():
        pytest.skip(reason)
    with beds.made("a2:mdev", conftest.CACHE) as one:
        yield one


@pytest.fixture
def aliquot(bed: Bed, through: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """A verb on the bed's node and libvirtd: its document."""
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
        # Remarks come before an error on the same stream.
        return msgspec.json.decode(out or err[err.index("{") :], type=dict[str, Any])

    return call


def states(document: dict[str, Any]) -> dict[str, tuple[bool, bool, bool]]:
    return {m["uuid"]: (m["active"], m["persistent"], m["autostart"]) for m in document["mdevs"]}


def test_mdevs_that_come_back(bed: Bed, aliquot: Say) -> None:
    gpu = "0000:01:00.0"
    aliquot(f"apply --gpu {gpu} --vgpu A2-4Q*2")
    bed.until(lambda: len(bed.virsh("nodedev-list", "--cap", "mdev").split()) == 2)
    listed = states(aliquot("libvirt nodedev list"))
    assert list(listed.values()) == [(True, False, False)] * 2
    first, second = listed
    aliquot(f"libvirt nodedev define {first}")
    assert states(aliquot("libvirt nodedev list"))[first] == (True, True, False)
    kept = states(aliquot("libvirt nodedev autostart"))
    assert kept == {first: (True, True, True), second: (True, True, True)}
    said = bed.run("mdevctl", "list", "--defined").stdout
    assert said.count("auto") == 2
    assert first in said
    assert second in said
    _reboot(bed)
    lost = states(aliquot("libvirt nodedev list"))
    assert lost == {first: (False, True, True), second: (False, True, True)}
    bed.enable(gpu)
    aliquot("libvirt nodedev start")
    assert set(bed.files.names("/sys/bus/mdev/devices")) == {first, second}
    (card,) = aliquot("vgpu list")["gpus"]
    assert [(v["uuid"], v["type"]) for v in card["vgpus"]] == [(u, "NVIDIA A2-4Q") for u in (first, second)]
    aliquot("libvirt nodedev undefine")
    assert bed.run("mdevctl", "list", "--defined").stdout.strip() == ""
    aliquot(f"vgpu disable {gpu}")


def _reboot(bed: Bed) -> None:
    """The simulated machine reboots; libvirtd, whose own state survives a real one, sees what is left."""
    bed.node.reboot()
    bed.until(lambda: bed.virsh("nodedev-list", "--cap", "mdev").split() == [])


def test_attach_with_autostart(bed: Bed, aliquot: Say, tmp_path: Any) -> None:
    gpu = "0000:01:00.0"
    aliquot(f"apply --gpu {gpu} --vgpu A2-8Q*2")
    bed.until(lambda: len(bed.virsh("nodedev-list", "--cap", "mdev").split()) == 2)
    path = tmp_path / "vm.xml"
    path.write_text(domain("win11"))
    bed.virsh("define", str(path))
    done = aliquot("libvirt attach win11 --vgpu A2-8Q --autostart")
    (device,) = done["devices"]
    # libvirt hears of what mdevctl wrote by a watch on its folder.
    bed.until(lambda: states(aliquot("libvirt nodedev list"))[device["uuid"]] == (True, True, True))
    assert aliquot("libvirt check win11")["fine"] is True
    started = aliquot("libvirt attach win11 --vgpu A2-8Q --start", code=20)
    assert started["code"] in ("NO_VFIO", "LIBVIRT", "HELD")
    with opened(bed.uri) as libvirt, connect(bed.node.name, state_dir=bed.node.state_dir) as connection:
        assert holders(libvirt, connection.backend.read(), connection.files.read) == {}
    bed.virsh("undefine", "win11")
    aliquot("libvirt nodedev undefine")
    aliquot(f"vgpu disable {gpu}")


def test_a_libvirt_without_mdevctl(bed: Bed, aliquot: Say) -> None:
    gpu = "0000:01:00.0"
    aliquot(f"apply --gpu {gpu} --vgpu A2-4Q")
    program = shutil.which("mdevctl") or "/usr/sbin/mdevctl"
    inside = ["nsenter", "-t", str(bed.pid), "-m", "-p", "--"]  # umount reads its own /proc
    subprocess.run([*inside, "mount", "--bind", "/dev/null", program], check=True)
    try:
        refused = aliquot("libvirt nodedev define", code=20)
    finally:
        subprocess.run([*inside, "umount", program], check=True)
    assert refused["code"] == "NO_MDEVCTL"
    assert "restore --boot" in refused["next"]
    aliquot(f"vgpu disable {gpu}")
