"""Publication of the devices that this node's VMs have, in the VMs' annotation and in the names in their spec.

The source is kubelet's pod resources, otherwise the launcher's environment. A VM that runs here has the annotation. A
VM that stopped here has none, and its spec names the devices that it had. A VM that moved belongs to its new node.

The watch covers the instances of this node, by the label that KubeVirt's virt-handler uses. A VM is read when its
instance changed; a periodic sweep reads all VMs to find missed changes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from aliquot.errors import AliquotError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
from aliquot.kubernetes.client.errors import ConflictError, NotFoundError
from aliquot.kubernetes.client.informer import Ended, Informer
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.kinds.harvester_names import ALLOCATION_ANNOTATION
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
from aliquot.kubernetes.node_agent.kubelet_pods import ResourceUses
from aliquot.kubernetes.virtual_machines.agent.launcher_devices import Environment, LauncherDevices, launcher_pods
from aliquot.kubernetes.virtual_machines.harvester.device_offer import object_names
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects
from aliquot.kubernetes.virtual_machines.kubevirt.allocation import (
    VmAllocation,
    allocation_of,
    merge_foreign,
    parse,
    removal_patch,
    rename_patch,
    render,
)

NODE_LABEL = "kubevirt.io/nodeName"
SWEEP_S = 300.0
"""How often a sweep reads all VMs, in seconds."""
_INVALID = 422

Key = tuple[str, str]
EVERYTHING: Key = ("", "machines")


class _PublishedAllocation(msgspec.Struct, frozen=True):
    """The annotation that a VM is known to have."""

    state: tuple[str, VmAllocation]
    """The instance's UID and the devices that the annotation came from."""
    annotated: VmAllocation


class VmAllocationPublisher:
    """The publisher of the allocations of this node's VMs.

    ``uses`` and ``environment`` are the sources of ``LauncherDevices``. ``wake`` is called when an instance of this
    node starts, stops, arrives or leaves; ``ended`` if the watch ends, which it should not.
    """

    def __init__(
        self,
        api: Api,
        node: str,
        wake: Callable[[], None],
        *,
        uses: ResourceUses | None = None,
        environment: Environment | None = None,
        ended: Ended = lambda _: None,
    ) -> None:
        self.error = ""
        """What could not be read or written last; "" if everything could."""
        self._api = api
        self._node = node
        self._launchers = LauncherDevices(uses, environment)
        self._ended = ended
        self._informer = Informer(
            VirtualMachineInstance,
            lambda _: wake(),
            namespace=ALL_NAMESPACES,
            labels={NODE_LABEL: node},
            is_own=self._is_local,
            relevant_part=_relevant_fields,
            log=log,
        )
        self._own = re.compile(re.escape(node) + "-[0-9a-f]{9,13}")
        self._published: dict[Key, _PublishedAllocation] = {}
        self._renamed: dict[str, None] = {}
        self._swept_at: float | None = None

    # -- start and end

    def start(self) -> None:
        """Start the watch."""
        self._informer.start(self._api, self._ended)

    async def close(self) -> None:
        await self._informer.close()

    # -- work

    async def sync(self, view: NodeView, objects: Objects, pods: Sequence[Pod]) -> None:
        """Update the VMs of this node; ``pods`` are the node's. A failure of one VM does not affect the others.

        Errors of the API server or kubelet are not raised: they are in ``error``, and the next call tries again.
        """
        if not self._informer.synced or self._informer.absent:
            self._set_error(self._informer.unavailable)
            return
        errors: list[str] = []
        names = object_names(view, objects)
        running = launcher_pods(pods)
        self._launchers.prune(pods)
        alive = {instance.key: instance for instance in self._informer.items if not instance.finished}
        if self._sweep_is_due(objects):
            await self._try(self._sweep(alive), EVERYTHING, errors)
        for key, instance in alive.items():
            await self._try(self._sync_running(instance, running.get(instance.metadata.uid), names), key, errors)
        for key in set(self._published) - set(alive):
            await self._try(self._handle_departed(key), key, errors)
        self._set_error("; ".join(errors))

    def _sweep_is_due(self, objects: Objects) -> bool:
        """Report whether to read all VMs: once at the start, then only if a VM could have a device of this node."""
        if self._swept_at is None:
            return True
        return time.monotonic() - self._swept_at >= SWEEP_S and bool(objects.vgpus or objects.claims or self._published)

    async def _try(self, work: Awaitable[None], key: Key, errors: list[str]) -> None:
        try:
            await work
        except AliquotError as error:
            if getattr(error, "status", 0) != _INVALID and not isinstance(error, ConflictError):
                errors.append(f"devices of virtual machine {'/'.join(filter(None, key))}: {error.brief}")

    async def _sync_running(self, instance: VirtualMachineInstance, pod: Pod | None, names: Mapping[str, str]) -> None:
        """Publish the devices of a VM that runs here, or rename the entries of one that is being stopped."""
        if instance.metadata.deletion_timestamp is not None:
            if instance.metadata.uid not in self._renamed:
                await self._rename(instance.key)
                self._renamed[instance.metadata.uid] = None
            return
        if instance.status.phase != "Running" or pod is None or not instance.devices.all:
            return
        found = allocation_of(instance.devices, await self._launchers.devices_of(instance, pod), names)
        state = (instance.metadata.uid, found)
        if instance.key in self._published and self._published[instance.key].state == state:
            return
        try:
            vm = await self._api.get(VirtualMachine, instance.name, instance.metadata.namespace)
            previous = parse(_annotation(vm))
            found = merge_foreign(found, previous or VmAllocation(), set(names.values()))
            if previous != found and found != VmAllocation():
                log.info("virtual machine %s has %s", "/".join(instance.key), ", ".join(found.names))
                body = {"metadata": {"annotations": {ALLOCATION_ANNOTATION: render(found)}}}
                await self._api.patch(VirtualMachine, instance.name, body, namespace=instance.metadata.namespace)
        except NotFoundError:
            log.debug("instance %s has no virtual machine", "/".join(instance.key))
        self._published[instance.key] = _PublishedAllocation(state, found)

    async def _rename(self, key: Key) -> None:
        """Write the names of a stopping VM's devices into its spec.

        This must happen before the VM has stopped: KubeVirt would show a change to a running VM's spec as one that
        waits for a restart.
        """
        try:
            vm = await self._api.get(VirtualMachine, key[1], key[0])
        except NotFoundError:
            return
        found = parse(_annotation(vm))
        patch = rename_patch(vm.devices, found) if found is not None else []
        if patch and vm.metadata.deletion_timestamp is None:
            await self._api.patch(VirtualMachine, key[1], patch, namespace=key[0], style="json")

    async def _handle_departed(self, key: Key) -> None:
        """Update a VM that no longer runs here."""
        try:
            instance = await self._api.get(VirtualMachineInstance, key[1], key[0])
            if not instance.finished and instance.status.node_name != self._node:
                self._published.pop(key, None)  # the VM has moved: the other node publishes its devices
                return
            if not instance.finished:
                return  # started again: the watch is about to report it
        except NotFoundError:
            pass
        try:
            vm = await self._api.get(VirtualMachine, key[1], key[0])
            await self._clear(vm)
        except NotFoundError:
            pass
        self._published.pop(key, None)

    async def _clear(self, vm: VirtualMachine) -> None:
        """Remove this node's devices from a VM's annotation, and name them in its spec."""
        text = _annotation(vm)
        found = parse(text)
        if found is None or not self._is_ours(found):
            return
        log.info("virtual machine %s has released %s", "/".join(vm.key), ", ".join(found.names))
        patch = [*rename_patch(vm.devices, found), *removal_patch(text)]
        await self._api.patch(VirtualMachine, vm.name, patch, namespace=vm.metadata.namespace, style="json")

    async def _sweep(self, alive: Mapping[Key, VirtualMachineInstance]) -> None:
        """Read all VMs to find changes that the watch missed.

        These are annotations that name this node's devices although no VM with devices runs here, and annotations that
        another client changed.
        """
        for vm in await self._api.list(VirtualMachine, ALL_NAMESPACES):
            found, instance = parse(_annotation(vm)), alive.get(vm.key)
            if vm.key in self._published and self._published[vm.key].annotated != found:
                del self._published[vm.key]
            elif instance is None and found is not None and self._is_ours(found):
                await self._handle_departed(vm.key)
            elif instance is not None and not instance.devices.all:
                await self._clear(vm)
        live = {instance.metadata.uid for instance in self._informer.items}
        self._renamed = {uid: None for uid in self._renamed if uid in live}
        self._swept_at = time.monotonic()

    def _is_ours(self, found: VmAllocation) -> bool:
        return bool(found.names) and all(self._own.fullmatch(name) for name in found.names)

    def _is_local(self, instance: VirtualMachineInstance) -> bool:
        return instance.status.node_name == self._node

    def _set_error(self, error: str) -> None:
        if error != self.error:
            self.error = error
            if error:
                log.warning("%s", error)


def _relevant_fields(instance: VirtualMachineInstance) -> object:
    """Return the fields of an instance that matter here: its heartbeat does not cause a round."""
    meta = instance.metadata
    return msgspec.structs.astuple(instance.status), meta.uid, meta.deletion_timestamp


def _annotation(vm: VirtualMachine) -> str:
    return vm.metadata.annotations.get(ALLOCATION_ANNOTATION, "")
