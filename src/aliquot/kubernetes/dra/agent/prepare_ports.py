"""The node that a ``ClaimPreparer`` changes, and what it tells others about claims."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.foundation.callbacks import Report
from aliquot.kubernetes.dra.agent.claim_types import DeviceFinder
from aliquot.kubernetes.node_agent.pod_holders import Uses
from aliquot.node.holders.prepared_claims import RecordedClaim

if TYPE_CHECKING:
    from aliquot.core.engine.context import ApplyOutcome
    from aliquot.node.connect import Connection

T = TypeVar("T")


class ChangeableGpus(Protocol):
    """The part of ``GpuWorker`` that changes the GPUs."""

    async def read(self) -> tuple[Inventory, Facts]: ...

    async def apply(self, plan: Plan, report: Report) -> ApplyOutcome: ...

    async def call(self, job: Callable[[Connection], T]) -> T: ...


class CdiNames(Protocol):
    """Names the devices of a claim for the container runtime."""

    async def write(self, claim: RecordedClaim, inventory: Inventory) -> RecordedClaim:
        """Describe the devices, and return the claim with their CDI names."""
        ...

    async def remove(self, uid: str) -> None: ...

    async def remove_others(self, uids: Collection[str]) -> None:
        """Remove what a killed agent left for claims that are not prepared."""
        ...


class PrepareListener(Protocol):
    """Gets what happened to claims, for metrics."""

    def record_claim(self, result: str, seconds: float) -> None: ...

    def record_apply(self, outcome: ApplyOutcome, seconds: float) -> None: ...


class PreparedNode(msgspec.Struct, frozen=True, eq=False):
    """The node whose claims are prepared."""

    hardware: ChangeableGpus
    find: DeviceFinder
    boot: Callable[[], Awaitable[str]]
    """Returns the id of this boot."""
    uses: Uses | None = None
    """Asks kubelet for the devices of pods; None without a kubelet."""
    policy: Policy = Policy()
