"""The source for local and simulated nodes: previews come from the planner, changes go to the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import msgspec

from aliquot.core.engine.step_timing import RECORD, StepListener, TimedStep, ignore_step
from aliquot.core.model.structured_text import StructuredText
from aliquot.dashboard.change_requests import AnyChangeRequest, AttachDevices, DetachDevices
from aliquot.dashboard.claim_views import ClaimsView
from aliquot.dashboard.local import history as past
from aliquot.dashboard.local import outcome_text as outcome_texts
from aliquot.dashboard.local import preview_requests, previews
from aliquot.dashboard.local.fleet_state import FleetState
from aliquot.dashboard.local.libvirt_rows import VmChange
from aliquot.dashboard.local.node_access import NodeAccess, NodeObservation
from aliquot.dashboard.local.previews import Address, PlannedNode
from aliquot.dashboard.local.worker_threads import Threads
from aliquot.dashboard.view_models import (
    ChangeOutcome,
    ChangePreview,
    ObservedFleet,
    PastChange,
    Person,
    VirtualizationView,
)
from aliquot.errors import AliquotError, BlockedError, PermissionDeniedError, UsageError
from aliquot.foundation.callbacks import Report

if TYPE_CHECKING:
    from aliquot.core.config.file import ConfigFile
    from aliquot.dashboard.local.libvirt_vms import LibvirtVms


MOST_APPLIES = 32
"""Changes that run concurrently. Some wait long for instances to be released. Observations do not wait for them."""


class Poller(Protocol):
    """A poller that keeps a ``FleetState`` up to date."""

    def access(self, node: str) -> NodeAccess | None:
        """Return the access to a node, None if the node does not exist."""
        ...

    def accesses(self) -> Iterable[NodeAccess]: ...

    async def run(self) -> None: ...

    async def refresh(self, node: str, observation: NodeObservation | None) -> None:
        """Update a node with a recent observation, or (None) by observing it."""
        ...


class LocalSource:
    """See ``dashboard.ports.FleetSource``. ``kind``: node or simulator."""

    def __init__(
        self, kind: str, title: str, state: FleetState, poller: Poller, *, file: ConfigFile | None, address: Address
    ) -> None:
        self.kind = kind
        self.title = title
        self.steps: StepListener = ignore_step
        self.vms: LibvirtVms | None = None
        self._state = state
        self._poller = poller
        self._file = file
        self._address = address
        self._threads = Threads(8, "ask")
        self._appliers = Threads(MOST_APPLIES, "apply")

    @property
    def fleet(self) -> ObservedFleet:
        return self._state.fleet

    @property
    def virtual(self) -> VirtualizationView:
        found = self._state.virtual
        if self.vms is not None:
            return self.vms.with_vms(found)
        return msgspec.structs.replace(found, no_vms=(NO_VMS,))

    @property
    def configs(self) -> tuple[str, ...]:
        return self._file.names if self._file is not None else ()

    def claims(self, node: str = "") -> ClaimsView:
        return ClaimsView()

    async def run(self) -> None:
        if self.vms is None:
            await self._poller.run()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poller.run())
            group.create_task(self.vms.run(self._state))

    async def changed(self, since: int) -> None:
        await self._state.changed(since)

    # -- previews

    async def preview(self, request: AnyChangeRequest, who: Person) -> ChangePreview:
        if who.reads_only:
            raise PermissionDeniedError(READ_ONLY)
        if isinstance(request, AttachDevices | DetachDevices):
            return await self._vm_preview(request)
        nodes = preview_requests.nodes_of(request)
        preview_requests.policy(request)
        observations = await asyncio.gather(*(self._observe(node) for node in nodes))
        found = {
            node: observation
            for node, observation in zip(nodes, observations, strict=True)
            if isinstance(observation, NodeObservation)
        }
        unreachable = {
            node: observation
            for node, observation in zip(nodes, observations, strict=True)
            if not isinstance(observation, NodeObservation)
        }
        made = await self._threads.run(lambda: preview_requests.preview(request, found, self._file, self._address))
        return previews.with_unreachable(made, unreachable, self._address) if unreachable else made

    async def _vm_preview(self, request: AttachDevices | DetachDevices) -> ChangePreview:
        vms = self.vms
        if vms is None:
            raise BlockedError(NO_VMS, code="NO_VM", next_step="aliquot dashboard")
        self._find(request.node)
        if not request.devices:
            raise UsageError("nothing is selected: select at least one")
        return await self._threads.run(lambda: vms.preview(request), request.node)

    def _find(self, node: str) -> NodeAccess:
        access = self._poller.access(node)
        if access is None:
            raise BlockedError(f"node {node} not found", code="NO_SUCH_NODE", next_step="aliquot sim list")
        return access

    async def _observe(self, node: str) -> NodeObservation | AliquotError:
        """Observe a node. Return the error if that fails. Raises BlockedError if the node does not exist."""
        access = self._find(node)
        try:
            observation = await self._threads.run(access.observe, node)
        except AliquotError as error:
            return error
        await self._poller.refresh(node, observation)
        return observation

    # -- execution

    async def execute(self, preview: ChangePreview, who: Person, report: Report) -> ChangeOutcome:
        if who.reads_only:
            return ChangeOutcome("refused", f"Nothing was changed. {READ_ONLY}", code="NO_PERMISSION")
        if preview.obstacles:
            first = preview.obstacles[0]
            return ChangeOutcome.refused(first.message, code=first.rule, next_step=first.next_step)
        if self.vms is not None and isinstance(preview.secret, VmChange):
            vms, vm_change = self.vms, preview.secret
            done = await self._threads.run(lambda: vms.execute(vm_change, report), patient=True)
            await vms.refresh(self._state)
            return done
        planned = preview.secret
        assert isinstance(planned, tuple)
        several = len(planned) > 1
        ended = await asyncio.gather(*(self._apply(each, who, report, several) for each in planned))
        return outcome_texts.merge_outcomes([(each.node, done) for each, done in zip(planned, ended, strict=True)])

    async def _apply(self, planned: PlannedNode, who: Person, report: Report, several: bool) -> ChangeOutcome:
        node, plan = planned.node, planned.plan
        access = self._poller.access(node)
        if access is None:
            return ChangeOutcome.refused(f"node {node} no longer exists.", code="NO_NODE")

        touched = False

        def report_line(line: str) -> None:
            report(StructuredText(f"{node}: ", line) if several else line)

        def watch_step(step: TimedStep) -> None:  # lines may also concern an earlier run that was interrupted
            nonlocal touched
            touched = touched or step.is_action or (step.name == RECORD and not step.code)
            self.steps(step)

        self._state.begin(node, who.name)
        try:
            outcome = await self._appliers.run(
                lambda: access.apply(plan, who.name, report_line, watch_step), patient=True
            )
        except AliquotError as error:
            return outcome_texts.refused(node, error, self._address, touched=touched)
        finally:
            self._state.end(node, who.name)
            await self._poller.refresh(node, None)
        return outcome_texts.apply_outcome(plan, planned.inventory, outcome, self._address)

    # -- history and permissions

    async def history(self, node: str | None = None, most: int = 200) -> tuple[PastChange, ...]:
        accesses = [s for s in self._poller.accesses() if node in (None, s.name)]
        busy = frozenset(view.name for view in self.fleet.nodes if view.changing)
        return await self._threads.run(lambda: past.changes(accesses, most, busy))

    async def may(self, who: Person, what: str) -> str:
        if who.reads_only:
            return READ_ONLY
        if what == "config" and not self.configs:
            return "No named configs are available: restart the dashboard with --file FILE."
        if what in ("attach", "detach"):
            return self.vms.why_not if self.vms is not None else NO_VMS
        return ""

    async def aclose(self) -> None:
        self._threads.close()
        self._appliers.close()


READ_ONLY = "You have read-only access."
NO_VMS = (
    "Simulated nodes have no VMs. For VMs of libvirt, run aliquot dashboard on their host. For VMs of KubeVirt, open "
    "the dashboard of their cluster."
)
