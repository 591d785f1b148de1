"""Simulated hosts on which real ``aliquot`` processes run, die, stop and run again.

The simulator reports what happened: its call log (which instances a write call reached) and its own record of the
geometry. Ids and UUIDs prove nothing, because both repeat after a rebuild at the same place.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

import aliquot
from aliquot.cli.main import main
from aliquot.foundation.paths import simulated_nodes
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from support import forkserver
from support.processes import PATIENCE_S, until

SOURCE = os.path.dirname(os.path.abspath(aliquot.__path__[0]))
KILLED = -signal.SIGKILL

FIRST = 2
"""Number of fsyncs before the first intent of an apply: the journal's entry in its folder, and the begin record. One
fsync for each driver call follows, then LAST.
"""

LAST = 3
"""Number of fsyncs after the last call: the end record, and the boot record with its entry in the folder."""

Geometry = list[tuple[Any, ...]]


class Trip(NamedTuple):
    """The point at which the tripwire fires: before or after (``when``) the ``nth`` fsync."""

    nth: int
    when: str = "before"
    number: int = signal.SIGKILL


class Result(NamedTuple):
    """Result of a process. ``code`` is negative if a signal ended the process."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Parse stdout as one JSON object."""
        return msgspec.json.decode(self.out, type=dict[str, Any])

    @property
    def error(self) -> dict[str, Any]:
        """Parse the error of a command with ``-o json``: the last JSON object on stderr."""
        return msgspec.json.decode(self.err[self.err.index("{") :], type=dict[str, Any])


class Case(NamedTuple):
    """A host and a desired state. ``arrange`` creates the initial state and returns what no write call may reach: pairs
    of a GPU's index and a GPU instance's id. ``calls`` is the number of driver calls of the change.
    """

    name: str
    template: str
    arrange: Callable[[SimClient], list[tuple[int, int]]]
    desired_state: str
    calls: int


class Bench:
    """A state directory with its server. ``trip`` is the tripwire."""

    def __init__(self, state: Path, trip: str) -> None:
        self.state = str(state)
        self.trip = trip
        self.machines: list[Machine] = []
        self.running: list[subprocess.Popen[str]] = []
        os.makedirs(simulated_nodes(self.state), mode=0o700, exist_ok=True)

    def machine(self, case: Case) -> Machine:
        """Start a new host in the case's initial state."""
        self.machines.append(Machine(self, case, f"n{len(self.machines):03}"))
        return self.machines[-1]

    def server(self) -> int:
        """Return the pid of the process that listens on the server's socket."""
        folder = os.open(simulated_nodes(self.state), os.O_PATH | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(f"/proc/self/fd/{folder}/control.sock")
                peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        finally:
            os.close(folder)
        return int.from_bytes(peer[:4], sys.byteorder)

    def close(self) -> None:
        """End all running processes and the server."""
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.communicate()
        for machine in self.machines:
            machine.node.close()
        control.stop(self.state)


class Machine:
    """A simulated host. Each change is made by a separate process, which calls the driver through its library or by
    commands (``smi``).
    """

    backend = "shim"

    def __init__(self, bench: Bench, case: Case, name: str) -> None:
        self.bench = bench
        self.case = case
        self.name = control.start(bench.state, case.template, name)
        self.node = SimClient(bench.state, name)
        control.library(bench.state, name)
        self.pcis = [str(g["pci"]) for g in self.node.show()["gpus"]]
        self.untouched = {(self.pcis[gpu], instance) for gpu, instance in case.arrange(self.node)}
        self.previous = self.geometry()
        self.holders = self.processes()
        self.folder = control.folder(bench.state, name)
        self.journal = os.path.join(self.folder, "change-journal.jsonl")
        self.trips = os.path.join(self.folder, "trips")
        self.file = os.path.join(self.folder, "config.yaml")
        self.saved = os.path.join(self.folder, "P.json")
        self.apply_arguments = ("apply", "-f", self.file, "-o", "json")
        self.as_saved = ("apply", self.saved, "-o", "json")
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(f"version: aliquot/v1\nconfigs:\n  request:\n{case.desired_state}\n")

    def begin(
        self, *words: str, trip: Trip | None = None, limit: int | None = None, ignoring: signal.Signals | None = None
    ) -> subprocess.Popen[str]:
        """Start ``aliquot``. ``limit`` is the maximum size of its files in bytes, ``ignoring`` a signal that its parent
        ignores.
        """
        env = self._environment(self.backend)
        if trip:
            settings = {"TRIP_AT": str(trip.nth), "TRIP_WHEN": trip.when, "TRIP_SIGNAL": str(int(trip.number))}
            env |= {"LD_PRELOAD": self.bench.trip, "TRIP_LOG": self.trips, **settings}
        command = [sys.executable, "-m", "aliquot", *words]
        if limit is not None:
            command = [sys.executable, "-c", _LIMITED, str(limit), *command]
        pipe = subprocess.PIPE
        popen = forkserver.Popen if ignoring is None else subprocess.Popen
        previous = signal.signal(ignoring, signal.SIG_IGN) if ignoring is not None else None
        try:
            found = popen(command, env=env, text=True, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
        finally:
            if ignoring is not None:
                signal.signal(ignoring, previous)
        self.bench.running.append(found)
        return found

    def _environment(self, backend: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ALIQUOT_", "MIG_PARTED_", "LD_"))}
        framework = {"ALIQUOT_STATE_DIR": self.bench.state, "ALIQUOT_SIM": self.name, "ALIQUOT_BACKEND": backend}
        return {**kept, **framework, "PYTHONPATH": SOURCE, "NO_COLOR": "1"}

    def run(self, *words: str, trip: Trip | None = None, limit: int | None = None) -> Result:
        """Run ``aliquot`` to its end."""
        return finish(self.begin(*words, trip=trip, limit=limit))

    def apply(self, trip: Trip | None = None, limit: int | None = None) -> Result:
        """Apply the case's desired state."""
        return self.run(*self.apply_arguments, trip=trip, limit=limit)

    def save(self) -> None:
        """Save the plan. ``as_saved`` are the arguments that apply it."""
        found = self.run("plan", "-f", self.file, "--out", self.saved)
        assert found.code == 10, found

    def held_up(self, nth: int, when: str = "after") -> subprocess.Popen[str]:
        """Apply the case's desired state up to an fsync, and keep the process stopped there until ``finish``."""
        found = self.begin(*self.apply_arguments, trip=Trip(nth, when, signal.SIGSTOP))
        await_stop(found.pid)
        return found

    def fsyncs(self) -> int:
        """Return how many fsyncs the processes with a tripwire have made."""
        return os.path.getsize(self.trips) if os.path.exists(self.trips) else 0

    def writes(self) -> list[dict[str, Any]]:
        """Return the calls of processes that change something, as they reached the node."""
        return [c for c in self.node.calls() if c.get("write") and not c.get("hand")]

    def geometry(self) -> Geometry:
        """Return the simulator's own record of modes, placed instances and placed compute instances, without ids."""
        found: Geometry = []
        for gpu in self.node.show()["gpus"]:
            found.append((gpu["pci"], gpu["mig"]["current"], gpu["mig"]["pending"]))
            for each in sorted(gpu["instances"], key=lambda i: str(i["placement"])):
                inside = sorted((c["placement"], c["profile_id"]) for c in each["compute_instances"])
                found.append((gpu["pci"], each["placement"], each["profile_id"], *inside))
        return found

    def processes(self) -> list[tuple[Any, ...]]:
        """Return the processes on each instance."""
        gpus = self.node.show()["gpus"]
        return [(g["pci"], p["pid"], p["instance"], p["compute_instance"]) for g in gpus for p in g["processes"]]

    def reboot(self) -> None:
        """Restart the host, which leaves no holders."""
        self.node.reboot()
        self.forget()

    def forget(self) -> None:
        """Allow changes to everything from now on."""
        self.untouched, self.holders = set(), self.processes()

    def assert_untouched(self) -> None:
        """Assert that no write call reached a protected instance, no mode change or reset reached its GPU, and its
        holders remain.
        """
        keeping = {pci for pci, _ in self.untouched}
        for call in self.writes():
            assert (call["gpu"], call["instance"]) not in self.untouched, call
            assert not (call["gpu"] in keeping and call["call"] in ("DeviceSetMigMode", "DeviceReset")), call
        assert self.processes() == self.holders

    def assert_finished(self) -> None:
        """Assert that the GPUs match the file. The test's own process verifies it through the driver's library."""
        output = io.StringIO()
        with patch.dict(os.environ, self._environment("shim"), clear=True), redirect_stdout(output):
            code = main(["verify", "-f", self.file])
        assert code == 0, output.getvalue()
        self.assert_untouched()

    def assert_finishes(self, *words: str) -> None:
        """Assert that a new process with the same arguments finishes the change."""
        again = self.run(*(words or self.apply_arguments))
        assert again.code == 0, again
        self.assert_finished()

    def assert_previous(self) -> None:
        """Assert that the initial state is unchanged."""
        assert self.geometry() == self.previous
        self.assert_untouched()


_LIMITED = (
    "import os, resource, sys; n = int(sys.argv[1]); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)); os.execv(sys.argv[2], sys.argv[2:])"
)


def finish(process: subprocess.Popen[str]) -> Result:
    """Wait for the end of a process, after resuming a stopped one. Asserts that it ends without a traceback."""
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err, err
    assert process.returncode != 1, err
    return Result(process.returncode, out, err)


def await_stop(pid: int) -> None:
    """Wait until a child is stopped. Raises AssertionError if it ended instead."""
    seen = os.WSTOPPED | os.WEXITED | os.WNOWAIT
    until(lambda: os.waitid(os.P_PID, pid, seen | os.WNOHANG) is not None)
    found = os.waitid(os.P_PID, pid, seen)
    assert found is not None
    assert found.si_code == os.CLD_STOPPED, "the process ended before the tripwire"
