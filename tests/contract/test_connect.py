"""Resolution of a node's name to a Connection: the backend, the file locations, the messages."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.core.engine.ports import Backend, Clock, HostControl, Journal, JournalEntry, Lock, Workers
from aliquot.errors import AliquotError, BlockedError, InUseError, LockedError, NoDriverError, UsageError
from aliquot.foundation import paths
from aliquot.hardware.host import LocalHost
from aliquot.hardware.nvml.backend import NvmlBackend, unavailable_reason
from aliquot.node.connect import connect
from aliquot.node.connection import Connection, nvidia_smi_root
from aliquot.node.simulated.backend import SimBackend
from aliquot.sim import lifecycle as control
from aliquot.sim import shim_build as library
from contract.conftest import Machine

Start = Callable[[str], Machine]


def opened(node: Machine, messages: list[str] | None = None) -> Connection:
    notes: list[str] = [] if messages is None else messages
    return connect(node.name, state_dir=node.state_dir, report=notes.append)


def no_compiler() -> str:
    raise AliquotError("no C compiler")


def test_the_real_nvml_code_over_the_shim(machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIQUOT_BACKEND", "shim")
    messages: list[str] = []
    with opened(machine("a30"), messages) as connection:
        assert isinstance(connection.nvml, NvmlBackend)
        assert connection.simulated
        assert connection.backend.read().node == connection.node
    assert messages == []


def test_bad_bytes_in_the_mark_of_the_library_have_it_made_again(
    machine: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALIQUOT_BACKEND", "shim")
    node = machine("a30")
    with opened(node):
        mark = Path(node.state_dir, "sim", node.name, "lib.key")
    good = mark.read_bytes()
    mark.write_bytes(b"\xff")
    with opened(node) as connection:
        assert connection.backend.read().gpus
    assert mark.read_bytes() == good


def test_direct_when_asked(machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIQUOT_BACKEND", "direct")
    messages: list[str] = []
    with opened(machine("a30"), messages) as connection:
        assert isinstance(connection.nvml, SimBackend)
    assert messages == []


def test_direct_without_a_compiler_and_says_so(machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    node = machine("a30")
    monkeypatch.delenv("ALIQUOT_BACKEND", raising=False)
    monkeypatch.setattr(library, "provide", lambda root, name: no_compiler())
    messages: list[str] = []
    with opened(node, messages) as connection:
        assert isinstance(connection.nvml, SimBackend)
        assert connection.backend.read().gpus[0].family == "a30-24gb"
    (sentence,) = messages
    assert "no C compiler" in sentence
    monkeypatch.setenv("ALIQUOT_BACKEND", "shim")
    with pytest.raises(AliquotError) as caught:
        opened(node)
    assert caught.value.brief == "no C compiler"


def test_a_backend_that_does_not_exist(machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    node = machine("a30")
    monkeypatch.setenv("ALIQUOT_BACKEND", "magic")
    with pytest.raises(UsageError):
        opened(node)


def test_a_node_that_does_not_exist(state_dir: str) -> None:
    with pytest.raises(BlockedError) as caught:
        connect("nobody", state_dir=state_dir)
    assert "nobody" in caught.value.brief
    assert caught.value.next_step


@pytest.mark.parametrize("backend", ["shim", "direct"])
def test_the_host_of_a_simulated_node(machine: Start, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setenv("ALIQUOT_BACKEND", backend)
    node = machine("a100-sxm4-40gb*2")
    with opened(node) as connection:
        pci = connection.backend.read().gpus[0].pci
        with pytest.raises(InUseError):
            connection.host.reset(pci)
        with connection.backend.suspend():
            connection.host.reset(pci)
        pid = node.node.hold(0)
        with pytest.raises(InUseError), connection.backend.suspend():
            connection.host.reset(pci)
        connection.host.terminate(pid)
        connection.host.terminate(pid)
        with connection.backend.suspend():
            connection.host.reset(pci)
        resets = [c for c in node.node.calls() if c["call"] == "DeviceReset"]
        assert [c["rc"] for c in resets] == [19, 0, 19, 0]
        assert {c["gpu"] for c in resets} == {pci}


def test_the_parts_are_the_ports(machine: Start) -> None:
    with opened(machine("a30")) as connection:
        backend: Backend = connection.backend
        host: HostControl = connection.host
        journal: Journal = connection.journal
        lock: Lock = connection.lock
        clock: Clock = connection.clock
        workers: Workers = connection.workers
        assert [backend, host, journal, lock, clock, workers]
        assert connection.journal is journal


def test_journal_and_lock_belong_to_the_node(machine: Start) -> None:
    one, two = machine("a30"), machine("a30")
    with opened(one) as first, opened(one) as again, opened(two) as other:
        with first.lock.hold():
            with pytest.raises(LockedError), again.lock.hold():
                pass
            with other.lock.hold():
                pass
        first.journal.append(JournalEntry("begin", first.journal.new_run(), boot=first.journal.boot), durable=True)
        assert len(again.journal.entries()) == 1
        assert len(other.journal.entries()) == 0


def test_a_connection_that_is_closed_has_no_file_open(machine: Start) -> None:
    # A page or an agent opens a node for each change. If each left a file open, a process that runs for months would
    # run out of descriptors.
    node = machine("a30")
    with opened(node) as connection:  # opens the libraries that stay loaded
        connection.backend.read()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with opened(node) as connection:
            journal = connection.execution_context().journal
            journal.append(JournalEntry("begin", journal.new_run()), durable=True)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_reboot_of_the_node_is_another_boot(machine: Start) -> None:
    node = machine("a30")
    with opened(node) as connection:
        before = connection.journal.boot
    node.node.reboot()
    with opened(node) as connection:
        assert before
        assert connection.journal.boot != before


def test_a_stopped_node_leaves_no_journal(machine: Start) -> None:
    node = machine("a30")
    with opened(node) as connection:
        connection.journal.append(JournalEntry("begin", "r"), durable=True)
    folder = Path(control.folder(node.state_dir, node.name))
    assert list(folder.glob("*journal*"))
    control.stop(node.state_dir, node.name)
    assert not folder.exists()
    control.start(node.state_dir, "a30", node.name)


def test_the_machine_itself() -> None:
    if unavailable_reason() is None:
        with connect() as connection:
            assert not connection.simulated
            assert connection.node == os.uname().nodename
            assert isinstance(connection.host, LocalHost)
    else:
        with pytest.raises(NoDriverError) as caught:
            connect()
        assert caught.value.next_step


def test_nvidia_smi_of_a_driver_root(tmp_path: Path) -> None:
    assert nvidia_smi_root(None) == "/"
    assert nvidia_smi_root(str(tmp_path)) == "/"
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/nvidia-smi").touch()
    assert nvidia_smi_root(str(tmp_path)) == str(tmp_path)


def test_the_state_directory_is_the_users_when_none_is_given(machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    node = machine("a30")
    monkeypatch.setenv("ALIQUOT_STATE_DIR", node.state_dir)
    assert paths.state_dir() == node.state_dir
    with connect(node.name) as connection:
        assert connection.backend.read().gpus
