"""A claim on a cluster, so that of several controllers on different hosts one acts.

It is the comment of a hidden node record (FUTURE, without GPUs), because that is what every release can store, change
and show. The comment names its owner, and is renewed: a claim that is not renewed for its lifetime is free. Two that
take a free claim at the same time both write, wait and read, and the last writer has it. The owner reads it again
before each change.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from aliquot.errors import LockedError
from aliquot.slurm.client.errors import DeniedError, NoNodeError, OldSlurmError, RefusedError
from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.client.port import Slurm

RECORD = "aliquot-controller"
LINE = f"NodeName={RECORD} CPUs=1 RealMemory=1 State=FUTURE"
SETTLE_S = 1.0
"""Seconds between writing a new claim and reading it: longer than another one takes from reading to writing."""
RENEWALS = 3
"""How often a claim is renewed in its lifetime."""
_TEXT = re.compile(r"aliquot controller (\S{1,300}) at (\d{1,12}) for (\d{1,6}) s")


class ShownClaim(msgspec.Struct, frozen=True):
    """The claim that a record shows."""

    owner: str
    at: int
    """When it was renewed, in seconds since the epoch of the owner's clock."""
    lifetime: int

    @property
    def text(self) -> str:
        return f"aliquot controller {self.owner} at {self.at} for {self.lifetime} s"


def claim_of(node: SlurmNode | None) -> ShownClaim | None:
    """Return the claim on a record, or None if it is free."""
    found = _TEXT.fullmatch(node.comment) if node is not None else None
    return ShownClaim(found[1], int(found[2]), int(found[3])) if found else None


class ControllerClaim(Protocol):
    """The claim of a controller on the cluster, beside the lock on its host."""

    problem: str
    """Why Slurm cannot store it, or "": then only the lock of this host keeps controllers apart."""

    def hold(self, nodes: Iterable[SlurmNode], now: float) -> str:
        """Take or renew the claim that ``nodes`` show. Returns another owner that has it, or ""."""
        ...

    def verify(self) -> str:
        """Read the claim again. Returns another owner that has it now, or ""."""
        ...


class NoClaim:
    problem = ""

    def hold(self, nodes: Iterable[SlurmNode], now: float) -> str:
        return ""

    def verify(self) -> str:
        return ""


def require_own(owner: str) -> None:
    """Raise LockedError if another controller has the claim."""
    if owner:
        brief = f"{owner} is the Slurm controller of this cluster"
        raise LockedError(brief, next_step="aliquot slurm demand -f FILE", holder=owner)


class ClusterClaim:
    """The claim of one controller. ``owner`` is its host and history file: a restarted controller has the same."""

    def __init__(
        self,
        slurm: Slurm,
        owner: str,
        lifetime_s: float,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.problem = ""
        self._slurm = slurm
        self._owner = "".join(owner.split())[:300]
        self._lifetime = round(lifetime_s)
        self._sleep = sleep
        self._monotonic = monotonic
        self._other: tuple[ShownClaim, float] | None = None
        """The claim of another controller, and when it expires by this host's clock."""
        self._held = False

    def hold(self, nodes: Iterable[SlurmNode], now: float) -> str:
        record = next((node for node in nodes if node.name == RECORD), None)
        found = claim_of(record)
        if found is not None and found.owner != self._owner and self._lives(found, now):
            self._held = False
            return found.owner
        if found is not None and found.owner == self._owner and self._held:
            if 0 <= now - found.at < self._lifetime / RENEWALS:
                return ""
            self._write(record, now)
            return ""
        if self._write(record, now):
            self._sleep(SETTLE_S)
            return self.verify()
        return ""

    def verify(self) -> str:
        if self.problem:
            return ""
        try:
            found = claim_of(self._slurm.node(RECORD))
        except NoNodeError:
            found = None
        self._held = found is not None and found.owner == self._owner
        return found.owner if found is not None and not self._held else ""

    def release(self) -> None:
        """Give the claim up, so that another controller need not wait for the end of its lifetime."""
        if self._held and not self.verify():
            self._slurm.describe(RECORD, {"comment": ""})
        self._held = False

    def _write(self, record: SlurmNode | None, now: float) -> bool:
        try:
            if record is None:
                self._slurm.create(LINE)
            self._slurm.describe(RECORD, {"comment": ShownClaim(self._owner, round(now), self._lifetime).text})
        except (RefusedError, DeniedError, OldSlurmError, NoNodeError) as error:
            self.problem = error.brief
            return False
        self.problem = ""
        return True

    def _lives(self, found: ShownClaim, now: float) -> bool:
        """Report whether another's claim is being renewed. Its clock counts only for the first one that is seen."""
        if self._other is None or self._other[0] != found:
            age = max(0.0, now - found.at) if self._other is None or self._other[0].owner != found.owner else 0.0
            self._other = found, self._monotonic() + found.lifetime - age
        return self._monotonic() < self._other[1]
