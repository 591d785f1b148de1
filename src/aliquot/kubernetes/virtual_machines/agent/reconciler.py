"""A round of the devices agent: observe, write the objects, apply the first desired state that is due."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.planner.plan import plan as make
from aliquot.errors import AliquotError, LockedError, Message, StalePlanError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.errors import ApiError, NotFoundError
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.gpu.change_report import PARTIAL, ROLLBACK_TEXT, UNDONE
from aliquot.kubernetes.gpu.node_pods import has_ended
from aliquot.kubernetes.node_agent.held_devices import devices_to_destroy
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse, Uses, held_by_pods, uses_of_devices
from aliquot.kubernetes.virtual_machines.agent.function_binder import FunctionBinder
from aliquot.kubernetes.virtual_machines.agent.host_gpus import DriverAccess, HostGpus, HostObservation
from aliquot.kubernetes.virtual_machines.agent.informers import NodeDeviceInformers
from aliquot.kubernetes.virtual_machines.agent.metrics import DevicesAgentMetrics
from aliquot.kubernetes.virtual_machines.agent.node_report import DevicesAgentStatus
from aliquot.kubernetes.virtual_machines.agent.object_writer import ObjectWriter
from aliquot.kubernetes.virtual_machines.agent.peripherals import HostPeripherals
from aliquot.kubernetes.virtual_machines.agent.plugin_control import ALLOCATION_SETTLE_S, DevicePluginControl
from aliquot.kubernetes.virtual_machines.agent.retry_state import RetryTracker, error_result, plan_result
from aliquot.kubernetes.virtual_machines.harvester.gpu_intents import digest, driver_needed, intents
from aliquot.kubernetes.virtual_machines.harvester.node_view import Intent, NodeView, Objects, Result
from aliquot.kubernetes.virtual_machines.harvester.object_changes import changes
from aliquot.kubernetes.virtual_machines.harvester.reasons import NO_DRIVER

MAX_WRITES = 6
"""Write passes after one observation: an object that was just created causes others to be created. More passes would
mean that our own writes never satisfy the rules.
"""


class RoundResult(msgspec.Struct, frozen=True):
    """The result of a round."""

    view: NodeView
    objects: Objects
    status: DevicesAgentStatus
    driver_needed: bool
    plans: tuple[Plan, ...] = ()
    """The plan for each GPU's desired state, from the observation."""
    changed: bool = False
    """The round changed a GPU: observe again immediately."""
    wait_s: float | None = None
    """Seconds until a failed attempt is due again; None without one."""
    error: str = ""
    """What could not be read or written."""


class PlannedIntent(msgspec.Struct, frozen=True):
    """The desired state of a GPU, with the plan for it."""

    intent: Intent
    digest: str
    plan: Plan
    known_result: Result | None
    """The result that is known without an attempt."""


class Reconciler:
    """The reconciler of a node.

    ``locate_driver`` finds the driver, ``uses`` reads the allocations from kubelet (None without a kubelet),
    ``plugins`` allocate devices, ``boot`` returns the id of this boot. ``peripherals`` are None if the agent does not
    serve them.
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
        peripherals: HostPeripherals | None = None,
    ) -> None:
        self._informers = informers
        self._host_gpus = host_gpus
        self._writer = writer
        self._metrics = metrics
        self._locate_driver = locate_driver
        self._uses = uses
        self._plugins = plugins
        self._boot = boot
        self._peripherals = peripherals
        self._attempts = RetryTracker()
        self._binder = FunctionBinder(host_gpus, plugins, self._uses_or_error, lambda: informers.node)
        self._kubelet_error = ""
        self._pod_uses: Sequence[PodDeviceUse] = ()

    async def reconcile(self) -> RoundResult:
        """Run one round. Raise ApiUnavailableError, or HardwareError if the PCI bus cannot be read."""
        view = await self._observe()
        due = await self._publish(view)
        first = next(
            (d for d in due if d.known_result is None and self._attempts.is_due(d.intent.pci, d.digest, _clock())), None
        )
        if first is not None:
            await self._execute(first, view)
        changed = await self._binder.execute(view, self._informers.objects()) or first is not None
        if self._peripherals is not None:
            changed = await self._peripherals.apply(view, self._informers.objects()) or changed
        digests = {d.intent.pci: d.digest for d in due if d.known_result is None}
        objects = self._informers.objects()
        return RoundResult(
            view=view,
            objects=objects,
            status=_agent_status(view),
            driver_needed=driver_needed(view, objects),
            plans=tuple(d.plan for d in due),
            changed=changed,
            wait_s=self._next_due_s(view, digests),
            error=self._writer.error or self._kubelet_error,
        )

    def _next_due_s(self, view: NodeView, digests: Mapping[str, str]) -> float | None:
        """Return the seconds until the first failed change is due again; None if none has failed."""
        waits = (
            self._attempts.next_due_s(digests, _clock()),
            self._binder.next_due_s(view, self._informers.objects()),
            self._peripherals.wait_s if self._peripherals is not None else None,
        )
        return min((each for each in waits if each is not None), default=None)

    async def _observe(self) -> NodeView:
        found = await self._host_gpus.observe(await self._locate_driver())
        inventory = found.inventory
        if inventory is not None or self._peripherals is not None:
            self._pod_uses = await self._query_uses()
        if inventory is not None:
            inventory = held_by_pods(inventory, self._pod_uses)
        found = msgspec.structs.replace(found, inventory=inventory)
        view = _view(found, self._informers.name, await self._boot(), self._host_gpus.all_devices)
        if self._peripherals is None:
            return view
        allocated = {each: f"{use.namespace}/{use.pod}" for use in self._pod_uses for each in use.devices}
        peripherals = await self._peripherals.read()
        return msgspec.structs.replace(
            view, peripherals=peripherals, allocated=allocated, kubelet_error=self._kubelet_error
        )

    async def _query_uses(self) -> Sequence[PodDeviceUse]:
        """Read the allocations from kubelet. While kubelet does not answer, no plan that destroys a device runs."""
        self._kubelet_error = ""
        if self._uses is None:
            return ()
        try:
            found = await self._uses()
        except AliquotError as error:
            self._kubelet_error = f"kubelet does not report which pods have which devices: {error.brief}"
            return ()
        return [use for use in found if await self._is_alive(use)]

    async def _uses_or_error(self) -> tuple[Sequence[PodDeviceUse], str]:
        return await self._query_uses(), self._kubelet_error

    async def _is_alive(self, use: PodDeviceUse) -> bool:
        """Report whether the pod of an allocation may be alive.

        Older kubelets keep reporting pods that have ended. A pod that the watch does not show may be new: only a pod
        that has certainly ended or gone counts as not alive.
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
        """Write until the objects match the state. Return the desired states after that."""
        self._writer.begin_round()
        for _ in range(MAX_WRITES):
            objects = self._informers.objects()
            due = self._plan_intents(view, objects)
            found = changes(view, objects, self._results(due) | self._binder.results(view, objects))
            if not await self._writer.write(found):
                return due
        log.error("internal error: the objects never match what was written: %s", "; ".join(c.why for c in found[:3]))
        return due

    def _plan_intents(self, view: NodeView, objects: Objects) -> list[PlannedIntent]:
        """Plan the desired state of each GPU by itself: a blocked one does not affect the others."""
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
        """Return why a plan that destroys devices must wait: kubelet allocated one to a pod, or does not answer.

        The planner knows the holders that the kernel shows. This check covers devices that a pod has, but has not
        opened yet.
        """
        ending = devices_to_destroy(plan, inventory)
        if ending and self._kubelet_error:
            why = Message(self._kubelet_error, "systemctl status kubelet")
            return Result(intent_digest, False, "KubeletAway", str(why))
        use = next(iter(uses_of_devices(ending, self._pod_uses, inventory)), None)
        if use is None:
            return None
        what = f"{use.claim}" if use.claim else ", ".join(sorted(ending & set(use.devices)) or use.devices)
        text = f"kubelet allocated {what} to pod {use.namespace}/{use.pod}"
        why = Message(text, "end that pod (for a VM: shut it down); Aliquot then continues")
        return Result(intent_digest, False, "Held", str(why))

    def _results(self, due: Sequence[PlannedIntent]) -> dict[str, Result]:
        """Return the known result of each desired state: met, blocked, or the last failure.

        A desired state that was not tried yet has no result.
        """
        found = {d.intent.pci: d.known_result or self._attempts.result(d.intent.pci, d.digest) for d in due}
        others = self._peripherals.results if self._peripherals is not None else {}
        return {pci: result for pci, result in found.items() if result is not None} | dict(others)

    # -- changes

    async def _execute(self, due: PlannedIntent, view: NodeView) -> None:
        """Apply a plan.

        Its devices are withheld before the last query to kubelet, so that an allocation since the observation is seen.
        """
        assert view.inventory is not None
        ending = devices_to_destroy(due.plan, view.inventory)
        try:
            if self._plugins.withhold(ending):
                log.info("devices were allocated just now: waiting for kubelet to name their pods")
                await asyncio.sleep(ALLOCATION_SETTLE_S)
            if ending and await self._given_since(ending, view.inventory):
                log.info("GPU %s: a device was allocated to a pod just now: trying again", due.intent.pci)
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
                log.info("GPU %s: %s: waiting until it ends", pci, error.brief)
                return
            self._metrics.record_refusal(time.monotonic() - started)
            # The GPU changed since the observation: not a failure, but no hot loop either.
            if isinstance(error, StalePlanError):
                self._attempts.postpone(pci, due.digest, _clock())
                log.info("GPU %s: %s: observing again", pci, error.brief)
                return
            self._schedule_retry(due, error_result(error, due.digest))
            return
        self._metrics.record_apply(outcome, time.monotonic() - started)
        if outcome.error is None:
            self._attempts.record_success(pci, due.digest, _clock())
            log.info("GPU %s is in its desired state, verified by a fresh read", pci)
            return
        rollback_text = ROLLBACK_TEXT[PARTIAL if outcome.status == "partial" else UNDONE]
        self._schedule_retry(due, error_result(outcome.error, due.digest, rollback_text))

    def _schedule_retry(self, due: PlannedIntent, result: Result) -> None:
        pause = self._attempts.record_failure(due.intent.pci, result, _clock())
        log.error("GPU %s: %s: %s: next attempt in %.0f s", due.intent.pci, result.reason, result.message, pause)


def _view(found: HostObservation, node: str, boot: str, all_devices: bool) -> NodeView:
    return NodeView(
        node=node,
        boot=boot,
        now=time.time(),
        functions=found.functions,
        all_devices=all_devices,
        inventory=found.inventory,
        reason=found.reason,
        driver_error=found.error,
    )


def _agent_status(view: NodeView) -> DevicesAgentStatus:
    """Return the agent's status after an observation."""
    if not any(function.gpu for function in view.functions):
        return DevicesAgentStatus("working", "NoGpu", "this node has no NVIDIA GPU")
    if view.inventory is None:
        return DevicesAgentStatus("waiting", view.reason or NO_DRIVER, view.driver_error or "no GPU driver answers")
    return DevicesAgentStatus("working", "Working", "aliquot manages the objects of this node")


def _action_counts(plan: Plan) -> str:
    """Return the counts of the actions that follow: ``1x set-functions, 2x create``."""
    counts = Counter(str(action.__struct_config__.tag) for action in plan.actions)
    return ", ".join(f"{n}x {tag}" for tag, n in counts.items())


def _clock() -> float:
    return time.monotonic()
