"""``aliquot libvirt`` without a libvirt: XML by name, invalid arguments, and the imports of other verbs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from aliquot.cli.libvirt import commands
from aliquot.sim import lifecycle as control
from unit.libvirt.memory import MemoryLibvirt
from unit.libvirt.nodes import vm

from .conftest import Run
from .test_golden import compare, transcript
from .test_startup import imported

UNREACHABLE_URI = "qemu+unix:///system?socket=/nobody/is/here"


@pytest.fixture
def shared(state: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Start an A2 with mdevs, an L40S with vendor-specific VFIO and an L4 without a vGPU driver."""
    control.start(state, "a2:mdev,l40s:vfio,l4", "host")
    monkeypatch.setenv("ALIQUOT_SIM", "host")
    monkeypatch.setenv("ALIQUOT_LIBVIRT", "virsh")
    assert run("apply", "--gpu", "0", "--vgpu", "A2-4Q*3").code == 0
    assert run("apply", "--gpu", "1", "--vgpu", "L40S-8Q*2").code == 0
    yield run
    control.stop(state, "host")


def test_device_xml(shared: Run) -> None:
    lines = (
        "libvirt xml 0000:01:00.4 0000:01:00.5",
        "libvirt xml 0000:02:00.4",
        "libvirt xml 0000:01:00.4 0000:02:00.4",
        "libvirt xml 0000:01:00.4 0000:01:00.5 --ramfb none -o json",
        "libvirt xml 2",
        "libvirt xml 0",
        "libvirt xml 0000:01:01.3",
    )
    # UUIDs derive from the GPU's UUID, and that from the node's name: they are the same everywhere.
    compare("libvirt", *transcript(shared, *lines))


def test_bad_words(shared: Run) -> None:
    for line, code, answer in (
        ("libvirt xml", 2, "no device given: use --vgpu TYPE, or name devices"),
        ("libvirt xml --vgpu A2-4Q --count x", 2, "invalid value 'x': use a whole number"),
        ("libvirt xml --vgpu ,", 2, "a vGPU type is missing"),
        ("libvirt xml --count 2 0", 2, "--count takes a number, 1 or more, and needs --vgpu"),
        ("libvirt xml --vgpu a2-4q", 2, "error[UNKNOWN_TYPE]: no GPU has a vGPU type a2-4q (did you mean A2-4Q?)"),
        ("libvirt xml --vgpu id:9746", 2, "no GPU has a vGPU type id:9746"),
        ("libvirt xml --vgpu 746", 2, "write id:746, or the type's name"),
        ("libvirt attach", 2, "the following arguments are required"),
        ("libvirt attach vm --vgpu A2-4Q --multi some", 2, "invalid choice: 'some'"),
        ("libvirt nodedev", 2, "COMMAND"),
    ):
        result = shared(*line.split())
        assert (result.code, result.out) == (code, ""), line
        assert answer in result.err, line


class _Signalled(MemoryLibvirt):
    """Raises a signal while its second device is attached."""

    def attach(self, uuid: str, device: str, *, live: bool, config: bool) -> None:
        super().attach(uuid, device, live=live, config=config)
        if len(self.calls) == 2:
            os.kill(os.getpid(), self.number)

    number = signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_while_devices_are_attached_detaches_them(
    shared: Run, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    daemon = _Signalled(vm("win11"))
    daemon.number = number
    monkeypatch.setattr(commands, "opened", lambda args: nullcontext(daemon))
    previous = signal.signal(number, signal.default_int_handler)  # an unhandled signal must not end the tests
    try:
        result = shared("libvirt", "attach", "win11", "--vgpu", "A2-4Q", "--count", "3")
    finally:
        signal.signal(number, previous)
    assert result.code == 128 + number
    assert [verb for verb, _ in daemon.calls] == ["attach", "attach", "detach", "detach"]
    assert daemon.domain("uuid-of-win11").config == ()


def test_a_type_by_its_number(shared: Run) -> None:
    first = shared("libvirt", "xml", "--vgpu", "A2-4Q").out
    assert "<hostdev" in first
    assert shared("libvirt", "xml", "--vgpu", "id:746").out == first
    assert shared("plan", "--gpu", "0", "--vgpu", "a2-4q").code == 2


def test_without_a_daemon(shared: Run) -> None:
    # Without virsh, the error reports the missing virsh instead.
    for verb in ("check vm", "attach vm --vgpu A2-4Q", "detach vm --all", "nodedev list"):
        result = shared("libvirt", *verb.split(), "--connect", UNREACHABLE_URI)
        assert (result.code, result.out) == (20, ""), verb
        assert "blocked[NO_LIBVIRT]" in result.err
        assert "  next     " in result.err
    found = shared("libvirt", "xml", "--vgpu", "A2-4Q", "--count", "3", "--connect", UNREACHABLE_URI)
    assert (found.code, found.out.count("<hostdev"), found.out.count("ramfb")) == (0, 3, 1)
    assert "vGPUs in the definitions of VMs count as free" in found.err


def test_other_verbs_know_nothing_of_libvirt(shared: Run) -> None:
    for words in (("show",), ("vgpu", "list")):
        names = imported(*words)
        assert not {n for n in names if n == "libvirt" or n.startswith(("aliquot.libvirt", "xml"))}


def test_a_way_that_is_none(shared: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIQUOT_LIBVIRT", "pigeon")
    result = shared("libvirt", "check", "vm")
    assert (result.code, result.out) == (2, "")
    assert "invalid ALIQUOT_LIBVIRT 'pigeon'" in result.err
