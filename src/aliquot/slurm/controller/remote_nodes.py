"""The nodes themselves: ``aliquot slurm node`` and ``aliquot slurm apply`` there, by the words that lead there.

What they answer is not trusted: it is bounded (``far``), judged before anything is computed from it (``believing``),
and shown without what a terminal would take for orders.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.errors import BlockedError
from aliquot.foundation import bounded_process
from aliquot.slurm.controller.settings import ManagedNode
from aliquot.slurm.controller.untrusted_input import InvalidInventoryError, validate_inventory

FACTS_TIMEOUT_S = 60.0
_SHELLS = ("ssh", "rsh", "pdsh")
"""Programs that put their words together for a shell on the other side."""
_BEFORE = ("sudo", "doas", "env", "timeout", "nice", "ionice", "setpriv", "runuser", "sshpass")
"""Programs that run another, perhaps one of those."""
_LONGEST = 400
"""Characters of a sentence: it is logged, and kept."""


class RemoteNodeFacts(msgspec.Struct, frozen=True):
    """What a node says of itself. ``gpus`` are the PCI addresses that the record offers, none for all; ``unfinished``:
    a change was begun and neither finished nor undone.
    """

    inventory: Inventory
    gpus: tuple[str, ...] = ()
    unfinished: bool = False


class RemoteChangeOutcome(msgspec.Struct, frozen=True):
    """How a change ended. ``code`` is its exit status; ``sentence`` says what happened."""

    code: int
    sentence: str

    @property
    def done(self) -> bool:
        return self.code == 0


class RemoteNodes(Protocol):
    """The machines of records. Every call is bounded."""

    def facts(self, host: ManagedNode) -> RemoteNodeFacts:
        """Raises UnreachableError."""
        ...

    def apply(
        self, host: ManagedNode, config: Mapping[str, object], words: Sequence[str], bound_s: float
    ) -> RemoteChangeOutcome:
        """Cuts the GPUs and has Slurm follow. ``words`` are further options."""
        ...

    def finish(self, host: ManagedNode, bound_s: float) -> RemoteChangeOutcome:
        """Finishes, or undoes, the change that was cut off."""
        ...


class UnreachableError(BlockedError):
    """A node does not answer, or not as it should."""

    code = "UNREACHABLE"


class CommandRemoteNodes:
    """By programs: ``ssh gpu01 aliquot slurm apply ...``, or this very interpreter where no words lead elsewhere."""

    def facts(self, host: ManagedNode) -> RemoteNodeFacts:
        code, out, err = self._run(host, ["node"], "", FACTS_TIMEOUT_S)
        if code:
            raise UnreachableError(f"{host.name}: {sentence(code, '', err)}")
        try:
            return facts_of(msgspec.json.decode(out))
        except _INVALID as error:
            raise UnreachableError(f"{host.name}: its answer makes no sense: {printable(str(error))}") from error

    def apply(
        self, host: ManagedNode, config: Mapping[str, object], words: Sequence[str], bound_s: float
    ) -> RemoteChangeOutcome:
        text = msgspec.json.encode(config).decode()
        return self._change(host, ["apply", "-f", "-", *words], text, bound_s)

    def finish(self, host: ManagedNode, bound_s: float) -> RemoteChangeOutcome:
        return self._change(host, ["apply", "--continue"], "", bound_s)

    def _change(self, host: ManagedNode, words: list[str], text: str, bound_s: float) -> RemoteChangeOutcome:
        try:
            code, out, err = self._run(host, words, text, bound_s)
        except UnreachableError as error:
            return RemoteChangeOutcome(-1, error.brief)
        return RemoteChangeOutcome(code, "done" if code == 0 else sentence(code, out, err))

    def _run(self, host: ManagedNode, words: list[str], text: str, bound_s: float) -> tuple[int, str, str]:
        own = ["slurm", *words, "--node-name", host.name, *host.options, "-o", "json"]
        environment = {k: v for k, v in os.environ.items() if k != "SLURMD_NODENAME"}
        try:
            return bounded_process.run(command(host.reach, own), bound_s, text, env=environment)
        except bounded_process.ProcessTimeoutError as late:
            last = f": {sentence(0, '', late.err)}" if late.err.strip() else ""
            raise UnreachableError(f"{host.name}: no answer in {bound_s:.0f} s{last}") from late
        except OSError as error:
            raise UnreachableError(f"{host.name}: {shlex.join(host.reach)}: {error.strerror or error}") from error


def command(reach: Sequence[str], own: Sequence[str]) -> list[str]:
    """The command line for a verb of ours, here or there."""
    if not reach:
        return [sys.executable, "-m", "aliquot", *own]
    return [*reach, *([shlex.join(["aliquot", *own])] if uses_shell(reach) else ["aliquot", *own])]


def uses_shell(reach: Sequence[str]) -> bool:
    """Whether a shell on the other side reads what comes behind these words: ``ssh n1``, ``sudo -u slurm ssh n1``."""
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
    """The answer of ``aliquot slurm node -o json``. Raises one of ``_INVALID`` for what is none."""
    return RemoteNodeFacts(
        inventory=validate_inventory(answer["inventory"]),
        gpus=msgspec.convert(answer["settings"]["gpus"], tuple[str, ...]),
        unfinished=bool(answer["open"]),
    )


def printable(text: str) -> str:
    """A node's words in one line that a log may have."""
    return "".join(c if c.isprintable() else " " for c in text[: 4 * _LONGEST]).strip()[:_LONGEST]


def sentence(code: int, out: str, err: str) -> str:
    """How a change ended, in a line: what its outcome says, else its error, else its last words."""
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
