"""The nodes themselves: ``aliquot slurm node`` and ``aliquot slurm apply`` there, by the words that lead there."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from aliquot.controller.slurm.settings import Host
from aliquot.errors import BlockedError
from aliquot.model.inventory import Inventory

LOOK_S = 60.0
_SHELLS = ("ssh", "rsh", "pdsh")
"""Programs that put their words together for a shell on the other side."""


class Facts(msgspec.Struct, frozen=True):
    """What a node says of itself. ``gpus`` are the PCI addresses that the record offers, none for all; ``unfinished``:
    a change was begun and neither finished nor undone."""

    inventory: Inventory
    gpus: tuple[str, ...] = ()
    unfinished: bool = False


class Outcome(msgspec.Struct, frozen=True):
    """How a change ended. ``code`` is its exit status; ``sentence`` says what happened."""

    code: int
    sentence: str

    @property
    def done(self) -> bool:
        return self.code == 0


class Hosts(Protocol):
    """The machines of records. Every call is bounded."""

    def facts(self, host: Host) -> Facts:
        """Raises UnreachableError."""
        ...

    def apply(self, host: Host, wish: Mapping[str, object], words: Sequence[str], bound_s: float) -> Outcome:
        """Cuts the GPUs and has Slurm follow. ``words`` are further options."""
        ...

    def finish(self, host: Host, bound_s: float) -> Outcome:
        """Finishes, or undoes, the change that was cut off."""
        ...


class UnreachableError(BlockedError):
    """A node does not answer, or not as it should."""

    code = "UNREACHABLE"


class Programs:
    """By programs: ``ssh gpu01 aliquot slurm apply ...``, or this very interpreter where no words lead elsewhere."""

    def facts(self, host: Host) -> Facts:
        code, out, err = self._run(host, ["node"], "", LOOK_S)
        if code:
            raise UnreachableError(f"{host.name}: {sentence(code, '', err)}")
        try:
            said = msgspec.json.decode(out)
            return facts_of(said)
        except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError, AttributeError) as error:
            raise UnreachableError(f"{host.name}: its answer makes no sense: {error}") from error

    def apply(self, host: Host, wish: Mapping[str, object], words: Sequence[str], bound_s: float) -> Outcome:
        text = msgspec.json.encode(wish).decode()
        return self._change(host, ["apply", "-f", "-", *words], text, bound_s)

    def finish(self, host: Host, bound_s: float) -> Outcome:
        return self._change(host, ["apply", "--continue"], "", bound_s)

    def _change(self, host: Host, words: list[str], text: str, bound_s: float) -> Outcome:
        try:
            code, out, err = self._run(host, words, text, bound_s)
        except UnreachableError as error:
            return Outcome(-1, error.brief)
        return Outcome(code, "done" if code == 0 else sentence(code, out, err))

    def _run(self, host: Host, words: list[str], text: str, bound_s: float) -> tuple[int, str, str]:
        own = ["slurm", *words, "--node-name", host.name, *host.options, "-o", "json"]
        # A change must outlive Ctrl-C here: it is in a session of its own.
        try:
            done = subprocess.run(
                command(host.reach, own),
                input=text,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=bound_s,
                start_new_session=True,
                env={k: v for k, v in os.environ.items() if k != "SLURMD_NODENAME"},
            )
        except subprocess.TimeoutExpired as error:
            raise UnreachableError(f"{host.name}: no answer in {bound_s:.0f} s") from error
        except OSError as error:
            raise UnreachableError(f"{host.name}: {shlex.join(host.reach)}: {error.strerror or error}") from error
        return done.returncode, done.stdout, done.stderr


def command(reach: Sequence[str], own: Sequence[str]) -> list[str]:
    """The command line for a verb of ours, here or there."""
    if not reach:
        return [sys.executable, "-m", "aliquot", *own]
    name = os.path.basename(reach[0])
    return [*reach, *([shlex.join(["aliquot", *own])] if name in _SHELLS else ["aliquot", *own])]


def facts_of(said: Any) -> Facts:
    """The answer of ``aliquot slurm node -o json``."""
    return Facts(
        inventory=msgspec.convert(said["inventory"], Inventory),
        gpus=tuple(said["settings"]["gpus"]),
        unfinished=bool(said["open"]),
    )


def sentence(code: int, out: str, err: str) -> str:
    """How a change ended, in a line: what its outcome says, else its error, else its last words."""
    for text, keys in ((out, ("why", "reason")), (err[err.find("{") :], ("message",))):
        try:
            told = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            continue
        found = next((str(told[key]) for key in keys if told.get(key)), "")
        if found:
            return "; ".join([found, *map(str, (told.get("details") or ())[:3])])
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    return lines[-1][:400] if lines else f"exit status {code}"
