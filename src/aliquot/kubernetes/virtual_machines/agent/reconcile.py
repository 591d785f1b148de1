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
from aliquot.kubernetes.gpu.node_pods import ended
from aliquot.kubernetes.node_agent.pod_holders import Use, taken
from aliquot.kubernetes.virtual_machines.agent import node_report as tell
from aliquot.kubernetes.virtual_machines.agent.held_devices import doomed, occupied
from aliquot.kubernetes.virtual_machines.agent.host_gpus import Found, Machine, Way
from aliquot.kubernetes.virtual_machines.agent.informers import Corner
from aliquot.kubernetes.virtual_machines.agent.metrics import Tally
from aliquot.kubernetes.virtual_machines.agent.node_report import Standing
from aliquot.kubernetes.virtual_machines.agent.object_writer import Writer
from aliquot.kubernetes.virtual_machines.agent.retry_state import Attempts, judged, refused
from aliquot.kubernetes.virtual_machines.harvester.gpu_intents import digest, driver_needed, intents
from aliquot.kubernetes.virtual_machines.harvester.node_view import Intent, Objects, Result, View
from aliquot.kubernetes.virtual_machines.harvester.object_changes import changes

WRITES = 6
"""Rounds of writing after one look: an object that was just made has others that belong to it. More would mean that
what we write never satisfies ourselves.
"""
YOUNG_S = 3.0
"""How long kubelet may take from Allocate's answer until it names the pod."""
Uses = Callable[[], Awaitable[Sequence[Use]]]


class Hands(Protocol):
    """Who gives devices to pods: the device plugins."""

    def hold(self, ids: frozenset[str]) -> frozenset[str]:
        """Gives these to nobody from now on, none frees all; those of them that were given away moments ago."""
        ...


class Round(msgspec.Struct, frozen=True):
    """What a round came to. ``again``: something was changed, look at once. ``wait_s``: when a wish that failed is due
    again, None where none is. ``trouble``: what could not be written. ``plans``: one for each wish, as it was found.
    """

    view: View
    objects: Objects
    standing: Standing
    driver_needed: bool
    plans: tuple[Plan, ...] = ()
    again: bool = False
    wait_s: float | None = None
    trouble: str = ""


class Due(msgspec.Struct, frozen=True):
    """One GPU's wish with the plan for it; ``known`` is what is known of it without touching anything."""

    intent: Intent
    digest: str
    plan: Plan
    known: Result | None


class Work:
    """``way`` finds the driver, ``uses`` asks kubelet who has which device (None: there is no kubelet to ask),
    ``hands`` give devices away, ``boot`` tells the id of this boot.
    """

    def __init__(
        self,
        corner: Corner,
        machine: Machine,
        writer: Writer,
        tally: Tally,
        *,
        way: Callable[[], Awaitable[Way]],
        uses: Uses | None,
        hands: Hands,
        boot: Callable[[], Awaitable[str]],
    ) -> None:
        self._corner = corner
        self._machine = machine
        self._writer = writer
        self._tally = tally
        self._way = way
        self._uses = uses
        self._hands = hands
        self._boot = boot
        self._attempts = Attempts()
        self._blind = ""
        self._given: Sequence[Use] = ()

    async def round(self) -> Round:
        """One round. Raises ApiAwayError, and HardwareError where the PCI bus cannot be read."""
        view = await self._look()
        due = await self._publish(view)
        first = next((d for d in due if d.known is None and self._attempts.due(d.intent.pci, d.digest, _clock())), None)
        if first is not None:
            await self._carry_out(first, view)
        digests = {d.intent.pci: d.digest for d in due if d.known is None}
        return Round(
            view=view,
            objects=self._corner.objects(),
            standing=_standing(view),
            driver_needed=driver_needed(view),
            plans=tuple(d.plan for d in due),
            again=first is not None,
            wait_s=self._attempts.next(digests, _clock()),
            trouble=self._writer.trouble or self._blind,
        )

    async def _look(self) -> View:
        found = await self._machine.look(await self._way())
        inventory = found.inventory
        if inventory is not None:
            self._given = await self._asked()
            inventory = occupied(inventory, self._given)
        return _view(msgspec.structs.replace(found, inventory=inventory), self._corner.name, await self._boot())

    async def _asked(self) -> Sequence[Use]:
        """Who has which device, by kubelet's word. Where it is silent nothing that ends a device is done."""
        self._blind = ""
        if self._uses is None:
            return ()
        try:
            found = await self._uses()
        except AliquotError as error:
            self._blind = f"kubelet cannot say which pods have which devices: {error.brief}"
            return ()
        return [use for use in found if await self._lives(use)]

    async def _lives(self, use: Use) -> bool:
        """Older kubelets go on naming pods that have ended. A pod that the watch does not show yet may have just come:
        only who surely is over, or gone, counts as nobody.
        """
        key = (use.namespace, use.pod)
        known = next((pod for pod in self._corner.pods.items if pod.key == key), None)
        try:
            return not ended(known or await self._corner.api.get(Pod, use.pod, use.namespace))
        except NotFoundError:
            return False
        except ApiError:
            return True

    async def _publish(self, view: View) -> list[Due]:
        """Writes until the objects say what is so; the wishes as they are then."""
        self._writer.begin()
        for _ in range(WRITES):
            objects = self._corner.objects()
            due = self._planned(view, objects)
            found = changes(view, objects, self._results(due))
            if not await self._writer.write(found):
                return due
        log.error("internal fault: the objects never say what we write: %s", "; ".join(c.why for c in found[:3]))
        return due

    def _planned(self, view: View, objects: Objects) -> list[Due]:
        """The wish for each GPU by itself: one that cannot be met hinders no other."""
        inventory = view.inventory
        if inventory is None:
            return []
        found = []
        for intent in intents(view, objects):
            if intent.wish is None:
                continue
            with self._tally.changes.planning():
                mark, plan = digest(intent), make(inventory, Desired((intent.wish,)))
            known = judged(plan, mark) or self._forbidden(plan, inventory, mark)
            if known is not None and known.ok:
                self._attempts.ended(intent.pci)
            found.append(Due(intent, mark, plan, known))
        self._attempts.keep([d.intent.pci for d in found])
        return found

    def _forbidden(self, plan: Plan, inventory: Inventory, mark: str) -> Result | None:
        """Why a plan that ends devices must wait: kubelet gave one to a pod, or does not say. The planner sees holders
        where the kernel shows them; this is for what a pod was given and has not opened yet.
        """
        ending = doomed(plan, inventory)
        if ending and self._blind:
            return Result(mark, False, "KubeletAway", f"{self._blind} | next: systemctl status kubelet")
        use = next(iter(taken(ending, self._given, inventory)), None)
        if use is None:
            return None
        what = f"{use.claim}" if use.claim else ", ".join(sorted(ending & set(use.devices)) or use.devices)
        text = f"pod {use.namespace}/{use.pod} was given {what}"
        return Result(
            mark, False, "Held", f"{text} | next: end that pod (a virtual machine: shut it down); it then goes on"
        )

    def _results(self, due: Sequence[Due]) -> dict[str, Result]:
        """What is known of each wish: met, impossible, or how it failed last. A wish that is still to be tried has no
        result.
        """
        found = {d.intent.pci: d.known or self._attempts.result(d.intent.pci, d.digest) for d in due}
        return {pci: result for pci, result in found.items() if result is not None}

    # -- acting

    async def _carry_out(self, due: Due, view: View) -> None:
        """Devices that end are withheld before kubelet is asked the last time: what it gave away since the look is not
        taken.
        """
        assert view.inventory is not None
        ending = doomed(due.plan, view.inventory)
        try:
            if self._hands.hold(ending):
                log.info("devices were given to pods just now: waiting for kubelet to name them")
                await asyncio.sleep(YOUNG_S)
            if ending and await self._given_meanwhile(ending, view.inventory):
                log.info("GPU %s: a device was given to a pod just now: looking again", due.intent.pci)
                self._attempts.postponed(due.intent.pci, due.digest, _clock())
                return
            await self._apply(due)
        finally:
            self._hands.hold(frozenset())

    async def _given_meanwhile(self, ending: frozenset[str], inventory: Inventory) -> bool:
        uses = await self._asked()
        return bool(self._blind) or bool(taken(ending, uses, inventory))

    async def _apply(self, due: Due) -> None:
        pci = due.intent.pci
        log.info("GPU %s: %s", pci, _acts(due.plan))
        started = time.monotonic()
        if self._attempts.result(pci, due.digest) is not None:
            self._tally.changes.retried()
        try:
            with self._tally.changes.change():
                outcome = await self._machine.apply(due.plan, lambda line: log.info("%s", line))
        except AliquotError as error:
            if isinstance(error, LockedError):
                self._attempts.locked(pci, due.digest, error.holder, _clock())
                log.info("GPU %s: %s: waiting for its end", pci, error.brief)
                return
            self._tally.refused(time.monotonic() - started)
            if error.code == "MOVED":  # somebody changed the GPU since the look: no failure, but no hot loop either
                self._attempts.postponed(pci, due.digest, _clock())
                log.info("GPU %s: %s: looking again", pci, error.brief)
                return
            self._later(due, refused(error, due.digest))
            return
        self._tally.applied(outcome, time.monotonic() - started)
        if outcome.error is None:
            self._attempts.done(pci, due.digest, _clock())
            log.info("GPU %s is as wished, verified by a fresh read", pci)
            return
        back = "not all could be undone" if outcome.status == "partial" else "the former state is back"
        self._later(due, refused(outcome.error, due.digest, back))

    def _later(self, due: Due, result: Result) -> None:
        pause = self._attempts.failed(due.intent.pci, result, _clock())
        log.error("GPU %s: %s: %s: next attempt in %.0f s", due.intent.pci, result.reason, result.message, pause)


def _view(found: Found, node: str, boot: str) -> View:
    return View(
        node=node,
        boot=boot,
        now=time.time(),
        functions=found.functions,
        inventory=found.inventory,
        reason=found.reason,
        trouble=found.trouble,
    )


def _standing(view: View) -> Standing:
    """How the agent stands after a look."""
    if not any(function.gpu for function in view.functions):
        return Standing(tell.WORKING, "NoGpu", "this node has no NVIDIA GPU")
    if view.inventory is None:
        return Standing(tell.WAITING, view.reason or "NoDriver", view.trouble or "no GPU driver answers")
    return Standing(tell.WORKING, "Working", "the objects of this node are kept by aliquot")


def _acts(plan: Plan) -> str:
    """What is about to be done: ``1x set-functions, 2x create``."""
    counts = Counter(str(action.__struct_config__.tag) for action in plan.actions)
    return ", ".join(f"{n}x {tag}" for tag, n in counts.items())


def _clock() -> float:
    return time.monotonic()
