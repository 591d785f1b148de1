"""Doing one step. Each is safe to be killed in, and to be done again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

import msgspec

from aliquot.errors import AliquotError, StorageError
from aliquot.foundation import lock
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.logfmt import agent_log as log
from aliquot.foundation.logfmt import plain
from aliquot.hardware.systemd.errors import ServicesError
from aliquot.hardware.systemd.units import StoppedServices
from aliquot.kubernetes.client.cancellable_wait import Bound
from aliquot.kubernetes.client.errors import ApiError, ForbiddenError
from aliquot.kubernetes.gpu import gpu_operands as operands
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu import node_pods as pods
from aliquot.kubernetes.gpu.config_label import Trouble, trouble_of
from aliquot.kubernetes.gpu.gpu_operands import Marks, NodePatch, joined
from aliquot.kubernetes.gpu.node_status import SUCCESS, Status
from aliquot.kubernetes.gpu.pause_owner import Owner
from aliquot.kubernetes.label_agent.agent import decide, steps
from aliquot.kubernetes.label_agent.agent.apply_step import Change
from aliquot.kubernetes.label_agent.agent.node_informer import Corner
from aliquot.kubernetes.label_agent.agent.observation import Memory, Observation, RebootMark, boot_clock
from aliquot.kubernetes.label_agent.agent.observer import NO_RECORD
from aliquot.kubernetes.label_agent.agent.pod_waits import Waits
from aliquot.kubernetes.label_agent.agent.state_file import Record
from aliquot.kubernetes.node_agent.gpu_worker import Hardware
from aliquot.kubernetes.node_agent.messages import DRIVER_HANGS

if TYPE_CHECKING:
    from aliquot.kubernetes.label_agent.agent.host_services import HostMachine
    from aliquot.kubernetes.label_agent.agent.metrics import Tally
    from aliquot.kubernetes.label_agent.agent.publisher import Publisher

COUNTED = ("ApplyFailed", "ApplyRefused")
"""Reasons that figures know better, by the error's own code."""
PAUSES = 5
"""How often one pause is made before it counts as undone by somebody."""


class Actor:
    """Does steps, and signs what it pauses as ``owner``. ``change_lock`` is the path of the node's change lock.
    ``superseded`` is set by the loop when there is a newer request.
    """

    def __init__(
        self,
        corner: Corner,
        hardware: Hardware,
        record: Record,
        publisher: Publisher,
        machine: HostMachine,
        tally: Tally,
        owner: Owner,
        change_lock: str = "",
    ) -> None:
        self.corner = corner
        self.hardware = hardware
        self.record = record
        self.publisher = publisher
        self.machine = machine
        self.tally = tally
        self.owner = owner
        self._change_lock = change_lock
        self.superseded = asyncio.Event()
        self._change = Change(self)
        self._waits = Waits(self)

    async def act(self, step: steps.Step, o: Observation, m: Memory) -> Memory:
        """Does a step; what is to be remembered after it. Raises ApiError where the API server is in the way: then the
        step is to be done again later.
        """
        try:
            return await self._do(step, o, m)
        except StorageError as error:
            return self.failed(trouble_of(error, NO_RECORD), o, m)
        except ForbiddenError as error:
            if not isinstance(step, steps.AwaitOperands | steps.Evict):
                raise
            return self.failed(trouble_of(error, "Forbidden"), o, m)  # what is paused must not wait for a right

    async def _do(self, step: steps.Step, o: Observation, m: Memory) -> Memory:
        match step:
            case steps.Tell() | steps.Withdraw():
                await self.report(step.status, o)
            case steps.Pause():
                return await self._pause(step, o, m)
            case steps.AwaitOperands():
                return await self._waits.operands(step, o, m)
            case steps.StopServices():
                return await self._stop(step, o, m)
            case steps.Evict():
                return await self._waits.holders_to_leave(step, o, m)
            case steps.Apply():
                return await self._change.apply(step, o, m)
            case steps.Reboot():
                return await self._reboot(step, o, m)
            case steps.Publish():
                published = await self.publisher.publish(o)
                return msgspec.structs.replace(m, published=published, unpublished=self.publisher.problem)
            case steps.StartServices():
                return await self._start(o, m)
            case steps.Restore():
                return await self._restore(step, o, m)
            case steps.Retry():
                log.info("the status was taken away: trying again at once")
                return m.asked_again()
            case steps.Rest():
                return await self._rest(step, o, m)
            case _:
                assert_never(step)
        return m

    async def _rest(self, step: steps.Rest, o: Observation, m: Memory) -> Memory:
        """Before a rest nothing is withheld any more, unless it is for holders that are waited for."""
        if step.waiting:
            await self._waits.withhold(o, m)
            return m.waiting(o)
        m = msgspec.structs.replace(m, lockouts=m.lockouts + 1 if step.locked else 0)
        if o.inventory is None:
            # What kubelet is offered stays while the driver only hangs: it may go on, and pods have these devices.
            if o.trouble is None or o.trouble.reason != DRIVER_HANGS:
                await self.publisher.withhold_all()
            return m
        await self.publisher.release()
        await self.publisher.mend(o)
        return msgspec.structs.replace(m, unpublished=self.publisher.problem, locked_by="")

    # -- telling

    async def report(self, status: Status, o: Observation) -> None:
        """Write a status to the node. Raises ApiError."""
        await self._write(status, o, lambda marks: NodePatch())

    async def _write(self, status: Status, o: Observation, also: Callable[[Marks], NodePatch]) -> None:
        """State label, annotations and ``also`` in one patch; an event and a line in the log if it is news. Nothing
        where somebody has asked anew since the look: this would be taken for the answer.
        """
        late = False
        said = NodePatch(
            {names.STATE_LABEL: status.state or None},
            {names.STATUS_ANNOTATION: status.document(), names.MESSAGE_ANNOTATION: status.sentence},
        )

        def change(marks: Marks) -> NodePatch:
            nonlocal late
            late = o.asked_anew(marks)
            return NodePatch() if late else joined(also(marks), said)

        await self.corner.change(change)
        if late:
            return
        if status.state == SUCCESS and self.record.value.reboot is not None:
            self.record.forget(msgspec.structs.replace(self.record.value, reboot=None))
        if o.state != status.state and status.state:
            plain(f"Changing the '{names.STATE_LABEL}' node label to '{status.state}'")
        if not status.moved(o.status) and o.state == status.state:
            return
        log.log(30 if status.state == "failed" else 20, "%s", status.sentence)
        for line in status.details:
            log.info("%s", line)
        self.tally.state(status.state)
        await self.corner.event(status, o.now)

    # -- pausing and giving back

    async def _pause(self, step: steps.Pause, o: Observation, m: Memory) -> Memory:
        pauses = m.pauses + 1 if m.paused_for == o.attempt and o.marks.record is not None else 1
        m = msgspec.structs.replace(m, cleared=False, silenced=False, paused_for=o.attempt, pauses=pauses)
        if pauses > PAUSES:
            return self._undone_pause(step, o, msgspec.structs.replace(m, pauses=0))
        plain("Shutting down all GPU clients in Kubernetes by disabling their component-specific nodeSelector labels")
        await self._write(
            step.status,
            o,
            lambda marks: operands.pause(
                marks, step.operands, wish=o.digest, now=o.now, cordon=step.cordon, owner=self.owner
            ),
        )
        return m

    def _undone_pause(self, step: steps.Pause, o: Observation, m: Memory) -> Memory:
        """Somebody is stronger: better to say so than to fight for ever, or to touch GPUs under their clients."""
        lost = operands.pause(o.marks, step.operands, cordon=step.cordon, owner=self.owner)
        what = ", ".join(lost.labels) or "the cordon"
        text = f"somebody undoes the pause again and again: {what}"
        who = f"kubectl get node {o.node} -o yaml --show-managed-fields"
        return self.failed(Trouble("PauseUndone", text, (), who), o, m)

    async def _restore(self, step: steps.Restore, o: Observation, m: Memory) -> Memory:
        done = step.status is not None and step.status.state == SUCCESS
        if done:
            await self._validate()
        plain(
            "Restarting all GPU clients previously shutdown in Kubernetes by reenabling their component-specific "
            "nodeSelector labels"
        )
        if step.status is None:
            await self.corner.change(self.restoration)
        else:
            await self._write(step.status, o, self.restoration)
        if done and m.did:
            plain("MIG configuration applied successfully")
        return msgspec.structs.replace(m, cleared=False, silenced=False, waiting_since=0.0)

    def restoration(self, marks: Marks) -> NodePatch:
        """What gives back the operands that this agent may give back now."""
        return operands.restore(marks, self.owner, self.writer)

    @property
    def writer(self) -> str:
        """The process that holds the change lock, "" while none does."""
        return lock.holder(self._change_lock)

    async def _validate(self) -> None:
        """A validator that cannot be made to run again is no reason to leave operands paused."""
        plain("Restarting validator pod to re-run all validations")
        bound = Bound(30.0)
        try:
            await pods.delete_validators(
                self.corner.api, self.corner.name, pods.VALIDATORS_AFTER, self.namespaces(), bound
            )
        except ApiError as error:
            log.warning("validators do not run again: %s", error.brief)

    def namespaces(self) -> tuple[str, ...]:
        return (self.publisher.place.clients_namespace or self.corner.namespace,)

    # -- the host

    async def _stop(self, step: steps.StopServices, o: Observation, m: Memory) -> Memory:
        plain("Shutting down all GPU clients on the host by stopping their systemd services")

        def note(stopped: StoppedServices) -> None:
            now = msgspec.structs.replace(self.record.value, stopped=stopped, stopped_by=self.owner)
            self.record.write(now)

        try:
            await self.machine.stop(step.services, note, self.record.value.stopped)
        except AliquotError as error:
            return self.failed(trouble_of(error, "HostClientsStay"), o, m)
        return msgspec.structs.replace(m, silenced=True)

    async def _start(self, o: Observation, m: Memory) -> Memory:
        """What does not start stays in the record, to be tried again."""
        plain("Restarting all GPU clients previously shutdown on the host by restarting their systemd services")
        stopped = self.record.value.stopped
        m = msgspec.structs.replace(m, silenced=False)
        if stopped is None:
            return m
        try:
            await self.machine.start(stopped)
        except AliquotError as error:
            left = stopped
            if isinstance(error, ServicesError):
                left = StoppedServices(tuple(unit for unit in stopped.units if unit.name in error.remaining))
            self.record.forget(msgspec.structs.replace(self.record.value, stopped=left))
            return self.failed(trouble_of(error, decide.OWED), o, m)
        self.record.forget(msgspec.structs.replace(self.record.value, stopped=None, stopped_by=None))
        return m

    async def _reboot(self, step: steps.Reboot, o: Observation, m: Memory) -> Memory:
        self.record.write(msgspec.structs.replace(self.record.value, reboot=RebootMark(o.digest, o.boot, o.clock)))
        await self.report(step.status, o)
        try:
            await self.machine.reboot()
        except AliquotError as error:
            self.record.forget(msgspec.structs.replace(self.record.value, reboot=None))
            return self.failed(trouble_of(error, "RebootRefused"), o, m)
        return msgspec.structs.replace(m, rebooting=o.boot)

    # -- failing

    def failed(self, trouble: Trouble, o: Observation, m: Memory) -> Memory:
        """The attempt failed: said, counted, and not made again before its time."""
        failures = m.failures + 1 if m.attempt == o.attempt else 1
        pause = Backoff(o.settings.retry_first_s, o.settings.retry_longest_s).pause(failures)
        log.error("%s: next attempt in %d s", trouble.reason, pause)
        if trouble.reason not in COUNTED:
            self.tally.changes.failed(trouble.reason)
        return msgspec.structs.replace(
            m, attempt=o.attempt, failed=trouble, failures=failures, retry_at=boot_clock() + pause, waiting_since=0.0
        )
