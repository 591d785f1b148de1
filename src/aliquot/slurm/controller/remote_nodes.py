"""Remote calls of ``aliquot slurm node`` and ``aliquot slurm apply`` on the nodes, through commands such as ssh.

The answers are not trusted. Their size and time are limited (``bounded_process``), they are validated before use
(``untrusted_input``), and control characters for a terminal are removed.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from threading import Lock
from typing import Any, Protocol

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.errors import BlockedError
from aliquot.foundation import bounded_process
from aliquot.slurm.client.errors import BusyError
from aliquot.slurm.controller.settings import ManagedNode
from aliquot.slurm.controller.untrusted_input import InvalidInventoryError, validate_inventory

FACTS_TIMEOUT_S = 60.0
SLOTS = "--slots"
"""The option with which a node is a slot board after the change."""
_SHELLS = ("ssh", "rsh", "pdsh")
"""Programs that join their arguments for a shell on the remote side."""
_BEFORE = ("sudo", "doas", "env", "timeout", "nice", "ionice", "setpriv", "runuser", "sshpass")
"""Programs that run another program, perhaps one of those."""
_LONGEST = 400
"""Limit of a message in characters, because it is logged and stored."""


class RemoteNodeFacts(msgspec.Struct, frozen=True):
    """The answer of a node."""

    inventory: Inventory
    gpus: tuple[str, ...] = ()
    """The PCI addresses of the GPUs that the node offers; empty means all."""
    unfinished: bool = False
    """Whether a change was started, but neither finished nor undone."""
    slots: bool = False
    """Whether the node is a slot board."""


class RemoteChangeOutcome(msgspec.Struct, frozen=True):
    """The outcome of a change on a node."""

    code: int
    """The exit status."""
    sentence: str
    lost_race: bool = False
    """Whether jobs started on some of its devices before the change: another change may be possible at once."""

    @property
    def done(self) -> bool:
        return self.code == 0


class RemoteNodes(Protocol):
    """The hosts of the managed nodes. Every call has a time limit."""

    def facts(self, host: ManagedNode) -> RemoteNodeFacts:
        """Query a node. Raises UnreachableError."""
        ...

    def apply(
        self, host: ManagedNode, config: Mapping[str, object], words: Sequence[str], bound_s: float
    ) -> RemoteChangeOutcome:
        """Apply a config to the GPUs and to Slurm. ``words`` are further options."""
        ...

    def finish(self, host: ManagedNode, bound_s: float) -> RemoteChangeOutcome:
        """Finish, or undo, an interrupted change."""
        ...


class UnreachableError(BlockedError):
    """A node does not answer, or its answer is invalid."""

    code = "UNREACHABLE"

    def __init__(self, node: str, why: str) -> None:
        super().__init__(f"{node}: {why}")
        self.why = why


class CommandRemoteNodes:
    """Nodes that are reached through commands: ``ssh gpu01 aliquot slurm apply ...``, or this interpreter if local."""

    def __init__(self) -> None:
        self._boards = Lock()

    def facts(self, host: ManagedNode) -> RemoteNodeFacts:
        code, out, err = self._run(host, ["node"], "", FACTS_TIMEOUT_S)
        if code:
            raise UnreachableError(host.name, sentence(code, "", err))
        try:
            return facts_of(msgspec.json.decode(out))
        except _INVALID as error:
            raise UnreachableError(host.name, f"its answer is invalid: {printable(str(error))}") from error

    def apply(
        self, host: ManagedNode, config: Mapping[str, object], words: Sequence[str], bound_s: float
    ) -> RemoteChangeOutcome:
        text = msgspec.json.encode(config).decode()
        # Each change of a board makes slurmctld read its files again, so they change one after the other.
        with self._boards if SLOTS in words else nullcontext():
            return self._change(host, ["apply", "-f", "-", *words], text, bound_s)

    def finish(self, host: ManagedNode, bound_s: float) -> RemoteChangeOutcome:
        return self._change(host, ["apply", "--continue"], "", bound_s)

    def _change(self, host: ManagedNode, words: list[str], text: str, bound_s: float) -> RemoteChangeOutcome:
        try:
            code, out, err = self._run(host, words, text, bound_s)
        except UnreachableError as error:
            return RemoteChangeOutcome(-1, error.brief)
        return RemoteChangeOutcome(code, "done" if code == 0 else sentence(code, out, err), _lost_race(out, err))

    def _run(self, host: ManagedNode, words: list[str], text: str, bound_s: float) -> tuple[int, str, str]:
        own = ["slurm", *words, "--node-name", host.name, *host.options, "-o", "json"]
        environment = {k: v for k, v in os.environ.items() if k != "SLURMD_NODENAME"}
        try:
            return bounded_process.run(command(host.reach, own), bound_s, text, env=environment)
        except bounded_process.ProcessTimeoutError as late:
            last = f": {sentence(0, '', late.err)}" if late.err.strip() else ""
            raise UnreachableError(host.name, f"no answer in {bound_s:.0f} s{last}") from late
        except OSError as error:
            raise UnreachableError(host.name, f"{shlex.join(host.reach)}: {error.strerror or error}") from error


def command(reach: Sequence[str], own: Sequence[str]) -> list[str]:
    """Return the command line for one of our verbs, local or remote."""
    if not reach:
        return [sys.executable, "-m", "aliquot", *own]
    return [*reach, *([shlex.join(["aliquot", *own])] if uses_shell(reach) else ["aliquot", *own])]


def uses_shell(reach: Sequence[str]) -> bool:
    """Report whether a remote shell parses the arguments after these: ``ssh n1``, ``sudo -u slurm ssh n1``."""
    programs = [os.path.basename(word) for word in reach]
    return programs[0] in _SHELLS or (programs[0] in _BEFORE and any(p in _SHELLS for p in programs))


_INVALID = (
    msgspec.MsgspecError,
    InvalidInventoryError,
    KeyError,
    TypeError,
    AttributeError,
    ValueError,
    RecursionError,
)


def facts_of(answer: Any) -> RemoteNodeFacts:
    """Parse the answer of ``aliquot slurm node -o json``. Raises one of ``_INVALID`` if it is invalid."""
    return RemoteNodeFacts(
        inventory=validate_inventory(answer["inventory"]),
        gpus=msgspec.convert(answer["settings"]["gpus"], tuple[str, ...]),
        slots=answer["settings"].get("slots") is True,
        unfinished=bool(answer["open"]),
    )


def _lost_race(out: str, err: str) -> bool:
    """Report whether a job was faster than a change, so that all of it or a part was left out."""
    for text, key, words in ((out, "status", ("done",)), (err[err.find("{") :], "code", (BusyError.code,))):
        try:
            document = msgspec.json.decode(text, type=dict[str, Any])
        except _INVALID:
            continue
        if document.get(key) in words:
            return True
    return False


def printable(text: str) -> str:
    """Return a text of a node in one line that is safe to log."""
    return "".join(c if c.isprintable() else " " for c in text[: 4 * _LONGEST]).strip()[:_LONGEST]


def sentence(code: int, out: str, err: str) -> str:
    """Return the outcome of a change in one line: the reason of its result, else its error, else its last output."""
    for text, keys in ((out, ("why", "reason")), (err[err.find("{") :], ("message",))):
        try:
            document = msgspec.json.decode(text, type=dict[str, Any])
            found = next((str(document[key]) for key in keys if document.get(key)), "")
            if found:
                return printable("; ".join([found, *map(str, (document.get("details") or ())[:3])]))
        except _INVALID:
            continue
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    return printable(lines[-1]) if lines else f"exit status {code}"
