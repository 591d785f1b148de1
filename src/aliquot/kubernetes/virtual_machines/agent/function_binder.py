"""The changes of drivers that claims on functions other than GPUs need, with the results of the last attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic

from aliquot.errors import AliquotError, Message
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from aliquot.kubernetes.virtual_machines.agent.host_gpus import HostGpus
from aliquot.kubernetes.virtual_machines.agent.plugin_control import ALLOCATION_SETTLE_S, DevicePluginControl
from aliquot.kubernetes.virtual_machines.agent.retry_state import RetryTracker, error_result
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects, Result
from aliquot.kubernetes.virtual_machines.harvester.other_functions import FunctionBinding, bindings

UsesOrError = Callable[[], Awaitable[tuple[Sequence[PodDeviceUse], str]]]
"""Asks kubelet for the devices of pods; the text says why it does not answer, "" if it does."""


class FunctionBinder:
    """The binder of a node's functions.

    ``uses`` asks kubelet, ``plugins`` allocate devices, ``node`` returns the Node.
    """

    def __init__(
        self, host: HostGpus, plugins: DevicePluginControl, uses: UsesOrError, node: Callable[[], Node | None]
    ) -> None:
        self._host = host
        self._plugins = plugins
        self._uses = uses
        self._node = node
        self._attempts = RetryTracker()

    def results(self, view: NodeView, objects: Objects) -> dict[str, Result]:
        """Return the last failure of each change that is needed now, by address."""
        found = {b.address: self._attempts.result(b.address, b.digest) for b in bindings(view, objects)}
        return {address: result for address, result in found.items() if result is not None}

    async def execute(self, view: NodeView, objects: Objects) -> bool:
        """Make the changes that are due. Return whether one was tried."""
        wanted = list(bindings(view, objects))
        self._attempts.retain([b.address for b in wanted])
        due = [b for b in wanted if self._attempts.is_due(b.address, b.digest, monotonic())]
        for binding in due:
            await self._execute(binding)
        return bool(due)

    def next_due_s(self, view: NodeView, objects: Objects) -> float | None:
        """Return the seconds until a failed change is due again; None if none has failed."""
        digests: Mapping[str, str] = {b.address: b.digest for b in bindings(view, objects)}
        return self._attempts.next_due_s(digests, monotonic())

    async def _execute(self, binding: FunctionBinding) -> None:
        failure = None
        try:
            if not binding.on:
                failure = await self._allocation(binding)
            if failure is None:
                await self._host.bind(binding, node_addresses(self._node()))
        except AliquotError as error:
            failure = error_result(error, binding.digest)
        finally:
            self._plugins.release()
        if failure is None:
            self._attempts.record_success(binding.address, binding.digest, monotonic())
            log.info("%s %s", binding.address, "is passed through" if binding.on else "is taken back")
            return
        pause = self._attempts.record_failure(binding.address, failure, monotonic())
        log.error("%s: %s: %s: next attempt in %.0f s", binding.address, failure.reason, failure.message, pause)

    async def _allocation(self, binding: FunctionBinding) -> Result | None:
        """Return why a function cannot be taken back: a pod has it, or kubelet does not answer. No pod gets it
        meanwhile.
        """
        if self._plugins.withhold(frozenset({binding.address})):
            await asyncio.sleep(ALLOCATION_SETTLE_S)  # kubelet names the pod shortly after the allocation
        uses, error = await self._uses()
        if error:
            return Result(binding.digest, False, "KubeletAway", str(Message(error, "systemctl status kubelet")))
        use = next((each for each in uses if binding.address in each.devices), None)
        if use is None:
            return None
        text = f"kubelet allocated {binding.address} to pod {use.namespace}/{use.pod}"
        why = Message(text, "end that pod (for a VM: shut it down); Aliquot then continues")
        return Result(binding.digest, False, "Held", str(why))


def node_addresses(node: Node | None) -> tuple[str, ...]:
    """Return the IP addresses by which the cluster reaches a node."""
    found = node.status.addresses if node is not None else ()
    return tuple(each.address for each in found if each.type == "InternalIP")
