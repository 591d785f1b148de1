"""One round of work: look, write what the objects must say, carry out the first wish that is due."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.planner.plan import plan as make
from aliquot.errors import AliquotError, LockedError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.errors import ApiError, NotFoundError
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.gpu.node_pods import has_ended
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse, Uses, uses_of_devices
from aliquot.kubernetes.virtual_machines.agent.held_devices import devices_to_destroy, with_pod_holders
from aliquot.kubernetes.virtual_machines.agent.host_gpus import DriverAccess, HostGpus, HostObservation
from aliquot.kubernetes.virtual_machines.agent.informers import NodeDeviceInformers
from aliquot.kubernetes.virtual_machines.agent.metrics import DevicesAgentMetrics
from aliquot.kubernetes.virtual_machines.agent.node_report import DevicesAgentStatus
from aliquot.kubernetes.virtual_machines.agent.object_writer import ObjectWriter
from aliquot.kubernetes.virtual_machines.agent.retry_state import RetryTracker, error_result, plan_result
from aliquot.kubernetes.virtual_machines.harvester.gpu_intents import digest, driver_needed, intents
from aliquot.kubernetes.virtual_machines.harvester.node_view import Intent, NodeView, Objects, Result
from aliquot.kubernetes.virtual_machines.harvester.object_changes import changes

MAX_WRITES = 6
"""Rounds of writing after one look: an object that was just made has others that belong to it. More would mean that
what we write never satisfies ourselves.
"""
ALLOCATION_SETTLE_S = 3.0
"""How long kubelet may take from Allocate's answer until it names the pod."""


class DevicePluginControl(Protocol):
    """Who gives devices to pods: the device plugins."""

    def withhold(self, ids: frozenset[str]) -> frozenset[str]:
        """Give these to nobody from now on. Return those of them that were given away moments ago."""
        ...

    def release(self) -> None:
        """Give away again what was withheld."""
        ...


class RoundResult(msgspec.Struct, frozen=True):
    """What a round came to. ``changed``: something was changed, look at once. ``wait_s``: when a wish that failed is
    due again, None where none is. ``error``: what could not be written. ``plans``: one for each wish, as it was found.
    """

    view: NodeView
    objects: Objects
    status: DevicesAgentStatus
    driver_needed: bool
    plans: tuple[Plan, ...] = ()
    changed: bool = False
    wait_s: float | None = None
    error: str = ""


class PlannedIntent(msgspec.Struct, frozen=True):
    """One GPU's wish with the plan for it; ``known_result`` is what is known of it without touching anything."""

    intent: Intent
    digest: str
    plan: Plan
    known_result: Result | None


class Reconciler:
    """``locate_driver`` finds the driver, ``uses`` asks kubelet who has which device (None: there is no kubelet to
    ask), ``plugins`` give devices away, ``boot`` tells the id of this boot.
    """

    def __init__(
        self,
        informers: NodeDeviceInformers,
        host_gpus: HostGpus,
        writer: ObjectWriter,
        metrics: DevicesAgentMetrics,
        *,
        locate_driver: Callable[[], Awaitable[DriverAccess]],
        uses: Uses | None,
        plugins: DevicePluginControl,
        boot: Callable[[], Awaitable[str]],
    ) -> None:
        self._informers = informers
        self._host_gpus = host_gpus
        self._writer = writer
        self._metrics = metrics
        self._locate_driver = locate_driver
        self._uses = uses
        self._plugins = plugins
        self._boot = boot
        self._attempts = RetryTracker()
        self._kubelet_error = ""
        self._pod_uses: Sequence[PodDeviceUse] = ()

    async def reconcile(self) -> RoundResult:
        """One round. Raises ApiUnavailableError, and HardwareError where the PCI bus cannot be read."""
        view = await self._observe()
        due = await self._publish(view)
        first = next(
            (d for d in due if d.known_result is None and self._attempts.is_due(d.intent.pci, d.digest, _clock())), None
        )
        if first is not None:
            await self._execute(first, view)
        digests = {d.intent.pci: d.digest for d in due if d.known_result is None}
        return RoundResult(
            view=view,
            objects=self._informers.objects(),
            status=_agent_status(view),
            driver_needed=driver_needed(view),
            plans=tuple(d.plan for d in due),
            changed=first is not None,
            wait_s=self._attempts.next_due_s(digests, _clock()),
            error=self._writer.error or self._kubelet_error,
        )

    async def _observe(self) -> NodeView:
        found = await self._host_gpus.observe(await self._locate_driver())
        inventory = found.inventory
        if inventory is not None:
            self._pod_uses = await self._query_uses()
            inventory = with_pod_holders(inventory, self._pod_uses)
        return _view(msgspec.structs.replace(found, inventory=inventory), self._informers.name, await self._boot())

    async def _query_uses(self) -> Sequence[PodDeviceUse]:
        """Who has which device, by kubelet's word. Where it is silent nothing that ends a device is done."""
        self._kubelet_error = ""
        if self._uses is None:
            return ()
        try:
            found = await self._uses()
        except AliquotError as error:
            self._kubelet_error = f"kubelet cannot say which pods have which devices: {error.brief}"
            return ()
        return [use for use in found if await self._is_alive(use)]

    async def _is_alive(self, use: PodDeviceUse) -> bool:
        """Older kubelets go on naming pods that have ended. A pod that the watch does not show yet may have just come:
        only who surely is over, or gone, counts as nobody.
        """
        key = (use.namespace, use.pod)
        known = next((pod for pod in self._informers.pods.items if pod.key == key), None)
        try:
            return not has_ended(known or await self._informers.api.get(Pod, use.pod, use.namespace))
        except NotFoundError:
            return False
        except ApiError:
            return True

    async def _publish(self, view: NodeView) -> list[PlannedIntent]:
        """Writes until the objects say what is so; the wishes as they are then."""
        self._writer.begin_round()
        for _ in range(MAX_WRITES):
            objects = self._informers.objects()
            due = self._plan_intents(view, objects)
            found = changes(view, objects, self._results(due))
            if not await self._writer.write(found):
                return due
        log.error("internal fault: the objects never say what we write: %s", "; ".join(c.why for c in found[:3]))
        return due

    def _plan_intents(self, view: NodeView, objects: Objects) -> list[PlannedIntent]:
        """The wish for each GPU by itself: one that cannot be met hinders no other."""
        inventory = view.inventory
        if inventory is None:
            return []
        found = []
        for intent in intents(view, objects):
            if intent.desired is None:
                continue
            with self._metrics.changes.time_plan():
                intent_digest, plan = digest(intent), make(inventory, Desired((intent.desired,)))
            known = plan_result(plan, intent_digest) or self._pod_conflict(plan, inventory, intent_digest)
            if known is not None and known.ok:
                self._attempts.clear(intent.pci)
            found.append(PlannedIntent(intent, intent_digest, plan, known))
        self._attempts.retain([d.intent.pci for d in found])
        return found

    def _pod_conflict(self, plan: Plan, inventory: Inventory, intent_digest: str) -> Result | None:
        """Why a plan that ends devices must wait: kubelet gave one to a pod, or does not say. The planner sees holders
        where the kernel shows them; this is for what a pod was given and has not opened yet.
        """
        ending = devices_to_destroy(plan, inventory)
        if ending and self._kubelet_error:
            return Result(
                intent_digest, False, "KubeletAway", f"{self._kubelet_error} | next: systemctl status kubelet"
            )
        use = next(iter(uses_of_devices(ending, self._pod_uses, inventory)), None)
        if use is None:
            return None
        what = f"{use.claim}" if use.claim else ", ".join(sorted(ending & set(use.devices)) or use.devices)
        text = f"pod {use.namespace}/{use.pod} was given {what}"
        return Result(
            intent_digest,
            False,
            "Held",
            f"{text} | next: end that pod (a virtual machine: shut it down); it then goes on",
        )

    def _results(self, due: Sequence[PlannedIntent]) -> dict[str, Result]:
        """What is known of each wish: met, impossible, or how it failed last. A wish that is still to be tried has no
        result.
        """
        found = {d.intent.pci: d.known_result or self._attempts.result(d.intent.pci, d.digest) for d in due}
        return {pci: result for pci, result in found.items() if result is not None}

    # -- acting

    async def _execute(self, due: PlannedIntent, view: NodeView) -> None:
        """Devices that end are withheld before kubelet is asked the last time: what it gave away since the look is not
        taken.
        """
        assert view.inventory is not None
        ending = devices_to_destroy(due.plan, view.inventory)
        try:
            if self._plugins.withhold(ending):
                log.info("devices were given to pods just now: waiting for kubelet to name them")
                await asyncio.sleep(ALLOCATION_SETTLE_S)
            if ending and await self._given_since(ending, view.inventory):
                log.info("GPU %s: a device was given to a pod just now: looking again", due.intent.pci)
                self._attempts.postpone(due.intent.pci, due.digest, _clock())
                return
            await self._apply(due)
        finally:
            self._plugins.release()

    async def _given_since(self, ending: frozenset[str], inventory: Inventory) -> bool:
        uses = await self._query_uses()
        return bool(self._kubelet_error) or bool(uses_of_devices(ending, uses, inventory))

    async def _apply(self, due: PlannedIntent) -> None:
        pci = due.intent.pci
        log.info("GPU %s: %s", pci, _action_counts(due.plan))
        started = time.monotonic()
        if self._attempts.result(pci, due.digest) is not None:
            self._metrics.changes.count_retry()
        try:
            with self._metrics.changes.time_change():
                outcome = await self._host_gpus.apply(due.plan, lambda line: log.info("%s", line))
        except AliquotError as error:
            if isinstance(error, LockedError):
                self._attempts.record_lock(pci, due.digest, error.holder, _clock())
                log.info("GPU %s: %s: waiting for its end", pci, error.brief)
                return
            self._metrics.record_refusal(time.monotonic() - started)
            if error.code == "MOVED":  # somebody changed the GPU since the look: no failure, but no hot loop either
                self._attempts.postpone(pci, due.digest, _clock())
                log.info("GPU %s: %s: looking again", pci, error.brief)
                return
            self._schedule_retry(due, error_result(error, due.digest))
            return
        self._metrics.record_apply(outcome, time.monotonic() - started)
        if outcome.error is None:
            self._attempts.record_success(pci, due.digest, _clock())
            log.info("GPU %s is as wished, verified by a fresh read", pci)
            return
        rollback_text = "not all could be undone" if outcome.status == "partial" else "the former state is back"
        self._schedule_retry(due, error_result(outcome.error, due.digest, rollback_text))

    def _schedule_retry(self, due: PlannedIntent, result: Result) -> None:
        pause = self._attempts.record_failure(due.intent.pci, result, _clock())
        log.error("GPU %s: %s: %s: next attempt in %.0f s", due.intent.pci, result.reason, result.message, pause)


def _view(found: HostObservation, node: str, boot: str) -> NodeView:
    return NodeView(
        node=node,
        boot=boot,
        now=time.time(),
        functions=found.functions,
        inventory=found.inventory,
        reason=found.reason,
        driver_error=found.error,
    )


def _agent_status(view: NodeView) -> DevicesAgentStatus:
    """How the agent stands after a look."""
    if not any(function.gpu for function in view.functions):
        return DevicesAgentStatus("working", "NoGpu", "this node has no NVIDIA GPU")
    if view.inventory is None:
        return DevicesAgentStatus("waiting", view.reason or "NoDriver", view.driver_error or "no GPU driver answers")
    return DevicesAgentStatus("working", "Working", "the objects of this node are kept by aliquot")


def _action_counts(plan: Plan) -> str:
    """What is about to be done: ``1x set-functions, 2x create``."""
    counts = Counter(str(action.__struct_config__.tag) for action in plan.actions)
    return ", ".join(f"{n}x {tag}" for tag, n in counts.items())


def _clock() -> float:
    return time.monotonic()
