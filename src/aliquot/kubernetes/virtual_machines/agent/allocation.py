"""Keeps true which devices the virtual machines of this node have: in their annotation, and in their spec's names.

What a machine got is kubelet's to say (its pod resources), else the launcher's environment. A machine that runs here
has the annotation; one that has stopped here has none, and the names of the devices that it had in its spec. One that
has gone to another node is that node's. Watched are the instances of this node, by the label that KubeVirt's own
virt-handler watches them by; machines are read when something of theirs has changed, and all of them now and then, for
what was missed.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from aliquot.errors import AliquotError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.client import EVERYWHERE, Api
from aliquot.kubernetes.client.errors import ConflictError, NotFoundError
from aliquot.kubernetes.client.informer import Shelf
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.kinds.harvester_names import ALLOCATION_ANNOTATION
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
from aliquot.kubernetes.virtual_machines.agent.launcher_devices import Environment, Launchers, Uses, launchers
from aliquot.kubernetes.virtual_machines.harvester.device_offer import object_names
from aliquot.kubernetes.virtual_machines.harvester.node_view import Objects, View
from aliquot.kubernetes.virtual_machines.kubevirt.allocation import (
    Allocation,
    allocated,
    joined,
    parse,
    removed,
    renamed,
    render,
)

NODE_LABEL = "kubevirt.io/nodeName"
SWEEP_S = 300.0
"""How often all machines are read."""
_INVALID = 422

Key = tuple[str, str]
EVERYTHING: Key = ("", "machines")


class _Told(msgspec.Struct, frozen=True):
    """What is known to be in a machine's annotation (``said``), and the instance and devices that it came from."""

    state: tuple[str, Allocation]
    said: Allocation


class Allocations:
    """``uses`` and ``environment`` tell what launchers were given (see ``Launchers``). ``wake`` is called when one of
    this node's machines starts, stops, comes or goes; ``ended`` when the watch ends, which it should not. ``trouble``
    is what could not be found out or written last, "" if all could.
    """

    def __init__(
        self,
        api: Api,
        node: str,
        wake: Callable[[], None],
        *,
        uses: Uses | None = None,
        environment: Environment | None = None,
        ended: Callable[[asyncio.Task[None]], None] = lambda _: None,
    ) -> None:
        self.trouble = ""
        self._api = api
        self._node = node
        self._launchers = Launchers(uses, environment)
        self._ended = ended
        self._shelf = Shelf(VirtualMachineInstance, wake, mine=self._mine, seen=_seen)
        self._own = re.compile(re.escape(node) + "-[0-9a-f]{9,13}")
        self._true: dict[Key, _Told] = {}
        self._named: dict[str, None] = {}
        self._swept: float | None = None
        self._task: asyncio.Task[None] | None = None

    # -- coming and going

    def start(self) -> None:
        """Begins to watch."""
        follow = self._shelf.follow(self._api, namespace=EVERYWHERE, labels={NODE_LABEL: self._node})
        self._task = asyncio.create_task(follow)
        self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # -- work

    async def keep(self, view: View, objects: Objects, pods: Sequence[Pod]) -> None:
        """Brings the machines of this node up to date; ``pods`` are the node's. One machine's trouble is no other's.
        Raises nothing that the API server or kubelet may answer: it is in ``trouble``, and tried again next time.
        """
        if not self._shelf.known or self._shelf.absent:
            self._say(self._shelf.away)
            return
        troubles: list[str] = []
        names = object_names(view, objects)
        running = launchers(pods)
        self._launchers.keep(pods)
        alive = {one.key: one for one in self._shelf.items if not one.over}
        if self._due(objects):
            await self._try(self._sweep(alive), EVERYTHING, troubles)
        for key, one in alive.items():
            await self._try(self._kept(one, running.get(one.metadata.uid), names), key, troubles)
        for key in set(self._true) - set(alive):
            await self._try(self._left(key), key, troubles)
        self._say("; ".join(troubles))

    def _due(self, objects: Objects) -> bool:
        """Whether to read all machines: once at the start, then only where a machine could have anything."""
        if self._swept is None:
            return True
        return time.monotonic() - self._swept >= SWEEP_S and bool(objects.vgpus or objects.claims or self._true)

    async def _try(self, work: Awaitable[None], key: Key, troubles: list[str]) -> None:
        try:
            await work
        except AliquotError as error:
            if getattr(error, "status", 0) != _INVALID and not isinstance(error, ConflictError):
                troubles.append(f"devices of virtual machine {'/'.join(filter(None, key))}: {error.brief}")

    async def _kept(self, one: VirtualMachineInstance, pod: Pod | None, names: Mapping[str, str]) -> None:
        """A machine that runs here, or is being stopped."""
        if one.metadata.deletion_timestamp is not None:
            if one.metadata.uid not in self._named:
                await self._rename(one.key)
                self._named[one.metadata.uid] = None
            return
        if one.status.phase != "Running" or pod is None or not one.devices.all:
            return
        found = allocated(one.devices, await self._launchers.given(one, pod), names)
        state = (one.metadata.uid, found)
        if one.key in self._true and self._true[one.key].state == state:
            return
        try:
            machine = await self._api.get(VirtualMachine, one.name, one.metadata.namespace)
            former = parse(_text(machine))
            found = joined(found, former or Allocation(), set(names.values()))
            if former != found and found != Allocation():
                log.info("virtual machine %s has %s", "/".join(one.key), ", ".join(found.names))
                body = {"metadata": {"annotations": {ALLOCATION_ANNOTATION: render(found)}}}
                await self._api.patch(VirtualMachine, one.name, body, namespace=one.metadata.namespace)
        except NotFoundError:
            log.debug("instance %s has no virtual machine", "/".join(one.key))
        self._true[one.key] = _Told(state, found)

    async def _rename(self, key: Key) -> None:
        """The machine is stopping: its spec gets the names of what it has. Now and not later, since a change of the
        spec while it runs would be shown as one that waits for a restart.
        """
        try:
            machine = await self._api.get(VirtualMachine, key[1], key[0])
        except NotFoundError:
            return
        found = parse(_text(machine))
        patch = renamed(machine.devices, found) if found is not None else []
        if patch and machine.metadata.deletion_timestamp is None:
            await self._api.patch(VirtualMachine, key[1], patch, namespace=key[0], style="json")

    async def _left(self, key: Key) -> None:
        """A machine that ran here and does no more."""
        try:
            one = await self._api.get(VirtualMachineInstance, key[1], key[0])
            if not one.over and one.status.node_name != self._node:
                self._true.pop(key, None)  # it has moved: the other node says what it has there
                return
            if not one.over:
                return  # started again, as the watch is about to tell
        except NotFoundError:
            pass
        try:
            machine = await self._api.get(VirtualMachine, key[1], key[0])
            await self._clear(machine)
        except NotFoundError:
            pass
        self._true.pop(key, None)

    async def _clear(self, machine: VirtualMachine) -> None:
        """The machine has none of this node's devices any more."""
        text = _text(machine)
        found = parse(text)
        if found is None or not self._ours(found):
            return
        log.info("virtual machine %s has given back %s", "/".join(machine.key), ", ".join(found.names))
        patch = [*renamed(machine.devices, found), *removed(text)]
        await self._api.patch(VirtualMachine, machine.name, patch, namespace=machine.metadata.namespace, style="json")

    async def _sweep(self, alive: Mapping[Key, VirtualMachineInstance]) -> None:
        """All machines, for what happened while nobody looked: an annotation that names this node's devices although
        nothing with devices runs here, or that somebody changed.
        """
        for machine in await self._api.list(VirtualMachine, EVERYWHERE):
            found, one = parse(_text(machine)), alive.get(machine.key)
            if machine.key in self._true and self._true[machine.key].said != found:
                del self._true[machine.key]
            elif one is None and found is not None and self._ours(found):
                await self._left(machine.key)
            elif one is not None and not one.devices.all:
                await self._clear(machine)
        live = {one.metadata.uid for one in self._shelf.items}
        self._named = {uid: None for uid in self._named if uid in live}
        self._swept = time.monotonic()

    def _ours(self, found: Allocation) -> bool:
        return bool(found.names) and all(self._own.fullmatch(name) for name in found.names)

    def _mine(self, one: VirtualMachineInstance) -> bool:
        return one.status.node_name == self._node

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            if trouble:
                log.warning("%s", trouble)


def _seen(one: VirtualMachineInstance) -> object:
    """What of an instance matters here: its heartbeat is no reason to look at the GPUs."""
    meta = one.metadata
    return msgspec.structs.astuple(one.status), meta.uid, meta.deletion_timestamp


def _text(machine: VirtualMachine) -> str:
    return machine.metadata.annotations.get(ALLOCATION_ANNOTATION, "")
