"""Docker, Podman and nerdctl through their command lines. Every call has a time limit, and none changes anything."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from aliquot.containers.runtime.errors import RuntimeUnavailableError
from aliquot.containers.runtime.inspect import container, removed_reservation
from aliquot.containers.runtime.models import Container, ContainerReservation

NAMES = ("docker", "podman", "nerdctl")
PATIENCE_S = 10.0
_MOST_BYTES = 256 << 20
"""Limit of output: a host may have thousands of containers."""
_CONNECTION_VARIABLES = (
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "CONTAINER_HOST",
    "CONTAINER_CONNECTION",
    "CONTAINERD_ADDRESS",
    "CONTAINERD_NAMESPACE",
)
"""Variables that choose the daemon of a command line."""

_SOCKETS = {"docker": "/var/run/docker.sock", "nerdctl": "/run/containerd/containerd.sock"}
_PACKAGES = {
    "docker": "install Docker (Debian 13: apt-get install docker.io docker-cli)",
    "podman": "install Podman (apt-get install podman)",
    "nerdctl": "install nerdctl, the command line of containerd",
}


def _last_words(output: str) -> str:
    """Return the last 300 characters of the output in one line, without half a word at the start."""
    line = " ".join(output.split())
    return line if len(line) <= 300 else f"... {line[-300:].partition(' ')[2]}"


class ContainerRuntime:
    """A runtime, reached with the variables of this process, or with ``connection_env`` instead of these."""

    def __init__(
        self, name: str, connection_env: Mapping[str, str] | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        self.name = name
        self._environment = dict(os.environ)
        if connection_env is not None:
            for variable in _CONNECTION_VARIABLES:
                self._environment.pop(variable, None)
            self._environment.update(connection_env)
        self._patience_s = patience_s

    @property
    def installed(self) -> bool:
        return shutil.which(self.name, path=self._environment.get("PATH")) is not None

    @property
    def worth_asking(self) -> bool:
        """True if it is installed and seems to have a daemon: without a socket, Aliquot makes no call."""
        if not self.installed:
            return False
        named = any(self._environment.get(v) for v in _CONNECTION_VARIABLES) or os.path.exists(self._settings())
        return self.name not in _SOCKETS or named or os.path.exists(_SOCKETS[self.name])

    @property
    def connection_env(self) -> dict[str, str]:
        """The variables that reach it, for later queries in the same way."""
        return {v: self._environment[v] for v in _CONNECTION_VARIABLES if self._environment.get(v)}

    @property
    def remote_address(self) -> str:
        """The address of a daemon on another host; "" for a local one."""
        variable = "CONTAINER_HOST" if self.name == "podman" else "DOCKER_HOST"
        address = self._environment.get(variable, "") if self.name != "nerdctl" else ""
        return address if address.startswith(("tcp://", "ssh://", "http://", "https://")) else ""

    def containers(self, ids: Sequence[str] | None = None) -> tuple[Container, ...]:
        """Return every container, running or not, or those with one of these ids. One that goes away meanwhile is
        omitted. Raises RuntimeUnavailableError.
        """
        if ids is None:
            ids = self._call("ps", "--all", "--quiet", "--no-trunc").split()
        if not ids:
            return ()
        found = self._documents(self._call("inspect", *ids, partial=True))
        return tuple(c for c in (container(each, self.name) for each in found) if c.id)

    def departed(self, since: float) -> frozenset[str]:
        """Return the reservations whose container was removed since then (seconds since 1970), as far as the runtime
        remembers. Docker keeps some hundred events, Podman none if its event log is off. Never raises.
        """
        if self.name == "nerdctl":  # it has no past events
            return frozenset()
        words = ["events", "--since", str(int(since)), "--filter", "type=container", "--format", "{{json .}}"]
        words += ["--stream=false"] if self.name == "podman" else ["--until", f"{time.time():.3f}"]
        try:
            lines = self._call(*words).splitlines()
        except RuntimeUnavailableError:
            return frozenset()
        return frozenset(label for line in lines if (label := removed_reservation(line)))

    def info(self) -> dict[str, Any]:
        """Return the JSON of ``info``. Raises RuntimeUnavailableError, also if the daemon does not answer."""
        text = self._call("info", "--format", "{{json .}}")
        try:
            found = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise self._unavailable(f"the output of {self.name} info is not JSON: {error}") from error
        errors = found.get("ServerErrors")
        if errors:
            raise self._unavailable(f"{self.name} does not answer: {errors[0]}")
        return found

    def version(self) -> str:
        """Return the output of ``--version``. Raises RuntimeUnavailableError."""
        return self._call("--version").strip()

    def _documents(self, text: str) -> list[dict[str, Any]]:
        try:
            return msgspec.json.decode(text or "[]", type=list[dict[str, Any]])
        except msgspec.DecodeError as error:
            raise self._unavailable(f"the output of {self.name} inspect is not JSON: {error}") from error

    def _call(self, *words: str, partial: bool = False) -> str:
        """Return stdout. With ``partial``, a call that fails only because some ids are gone returns what it printed."""
        from aliquot.foundation import bounded_process

        try:
            done = bounded_process.run([self.name, *words], self._patience_s, env=self._environment, most=_MOST_BYTES)
        except FileNotFoundError as error:
            raise self._unavailable(f"{self.name} is not installed", _PACKAGES.get(self.name)) from error
        except TimeoutError as error:
            raise self._unavailable(f"{self.name} does not answer within {self._patience_s:g} s") from error
        except OSError as error:
            raise self._unavailable(f"{self.name} cannot be run: {error.strerror}") from error
        if done.code and not (partial and "no such" in done.err.lower()):
            output = _last_words(done.err) or f"exit code {done.code}"
            raise self._unavailable(f"{self.name} {words[0]} fails: {output}")
        return done.out

    def _unavailable(self, sentence: str, step: str | None = None) -> RuntimeUnavailableError:
        return RuntimeUnavailableError(sentence, next_step=step or f"{self.name} info")

    def _settings(self) -> str:
        """Return the folder of Docker's contexts, one of which may choose another socket than the default."""
        folder = self._environment.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")
        return os.path.join(folder, "contexts")


_RuntimeKey = tuple[str, tuple[tuple[str, str], ...]]
"""A runtime and the variables that reach it."""


def _runtime_key(runtime: ContainerRuntime) -> _RuntimeKey:
    return runtime.name, tuple(sorted(runtime.connection_env.items()))


class RuntimeQueries:
    """Cached answers of each runtime about its containers; None if a runtime does not answer."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self.errors: list[str] = []
        self._patience_s = patience_s
        self._known: dict[_RuntimeKey, tuple[Container, ...] | None] = {}
        self._departed: dict[_RuntimeKey, tuple[float, frozenset[str]]] = {}

    def containers_for(self, reservation: ContainerReservation) -> tuple[Container, ...] | None:
        """Return the containers of the runtime that a reservation was made for, reached as it was then."""
        return self._containers(ContainerRuntime(reservation.runtime, reservation.connection_env, self._patience_s))

    def departed(self, reservation: ContainerReservation) -> bool:
        """Report whether the runtime remembers that the reservation's container was removed."""
        runtime = ContainerRuntime(reservation.runtime, reservation.connection_env, self._patience_s)
        key = _runtime_key(runtime)
        if key not in self._departed or reservation.made < self._departed[key][0]:
            # Reservations come oldest first, so one query covers all of them.
            self._departed[key] = reservation.made, runtime.departed(reservation.made)
        return reservation.id in self._departed[key][1]

    def local_containers(self, names: Iterable[str] = NAMES) -> tuple[Container, ...]:
        """Return all containers of all runtimes that this process reaches."""
        every = (ContainerRuntime(name, patience_s=self._patience_s) for name in names)
        return tuple(c for runtime in every if runtime.worth_asking for c in self._containers(runtime) or ())

    def _containers(self, runtime: ContainerRuntime) -> tuple[Container, ...] | None:
        key = _runtime_key(runtime)
        if key not in self._known:
            try:
                self._known[key] = runtime.containers()
            except RuntimeUnavailableError as error:
                self.errors.append(error.brief)
                self._known[key] = None
        return self._known[key]
