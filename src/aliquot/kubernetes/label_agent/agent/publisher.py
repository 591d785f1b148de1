"""What others learn of the GPUs, after each change at once: labels, device plugins, CDI documents, named configs."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError, BlockedError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.errors import ApiAwayError, ApiError, ConflictError
from aliquot.kubernetes.gpu.config_label import DATA_KEY
from aliquot.kubernetes.gpu.device_resources import offer
from aliquot.kubernetes.gpu.gfd_labels import labels, owned
from aliquot.kubernetes.gpu.gpu_operands import Marks, NodePatch
from aliquot.kubernetes.label_agent.agent.node_informer import Corner
from aliquot.kubernetes.label_agent.agent.observation import Observation
from aliquot.kubernetes.label_agent.agent.observer import Uses, generated
from aliquot.kubernetes.label_agent.agent.settings import Place

if TYPE_CHECKING:
    from aliquot.kubernetes.label_agent.agent.device_offering import Offering

_TIMESTAMP = "nvidia.com/gfd.timestamp"
_HEADER = "# Made by Aliquot from the GPUs of this node, and made again when they change. Do not edit.\n"


class Publisher:
    """``cdi`` writes CDI documents for an inventory, None where they are somebody else's; ``facts`` gives the facts of
    the last look; ``owner`` is the agent's own pod, with which the generated configs go. ``problem`` is what somebody
    refuses to be published, "" if nothing.
    """

    def __init__(
        self,
        corner: Corner,
        place: Place,
        facts: Callable[[], Facts | None],
        *,
        offering: Offering | None,
        cdi: Callable[[Inventory], tuple[str, ...]] | None,
        uses: Uses | None,
        owner: dict[str, Any] | None = None,
    ) -> None:
        self.corner = corner
        self.place = place
        self._offering = offering
        self.uses = uses
        self._facts = facts
        self._cdi = cdi
        self._owner = owner
        self._refusals: tuple[str, ...] = ()
        self._wanted: dict[str, str] = {}
        self._written = ""
        self._paths: tuple[str, ...] = ()
        self.problem = ""

    async def publish(self, o: Observation) -> str:
        """Makes everything follow the inventory; the key of what was published. Raises ApiAwayError and ConflictError;
        the devices were offered by then: kubelet needs no API server. What somebody refuses is kept as ``problem``, for
        nobody's operands must wait for it.
        """
        facts = self._facts()
        assert o.inventory is not None
        assert facts is not None
        usable = msgspec.structs.replace(
            o.inventory, gpus=tuple(gpu for gpu in o.inventory.gpus if gpu.pci not in o.reserved)
        )
        self.problem = self._write_cdi(usable)
        await self._offer(o, usable, facts)
        if o.settings.labels:
            await self._tried(self._label(o, o.inventory, facts))
        await self._tried(self._generated(o.inventory))
        return o.key

    async def mend(self, o: Observation) -> None:
        """Tries again what was refused. Raises ApiError."""
        undone = (
            self.problem or (o.settings.labels and self._mislabelled()) or not all(map(os.path.exists, self._paths))
        )
        if o.inventory is not None and undone:
            await self.publish(o)

    def _mislabelled(self) -> bool:
        """True if somebody changed what we wrote."""
        there = self.corner.marks.labels
        return any(there.get(n) != v for n, v in self._wanted.items() if n != _TIMESTAMP)

    async def _tried(self, writing: Awaitable[None]) -> None:
        try:
            await writing
        except (ApiAwayError, ConflictError):
            raise
        except ApiError as error:
            self.problem = f"{error.brief}{f' | next: {error.next_step}' if error.next_step else ''}"
            log.warning("not published: %s", self.problem)

    async def withhold(self, ids: frozenset[str]) -> frozenset[str]:
        """Give these devices to nobody from now on. Those that were given away moments ago are in the answer."""
        return self._offering.withhold(ids) if self._offering is not None else frozenset()

    async def withhold_all(self) -> None:
        """Nothing can be handed out: the driver is gone."""
        if self._offering is not None:
            self._offering.withhold_all()

    async def release(self) -> None:
        if self._offering is not None:
            self._offering.release()

    def _write_cdi(self, inventory: Inventory) -> str:
        """Why containers cannot get these devices by CDI, "" if they can."""
        if self._cdi is None:
            return ""
        try:
            self._paths = tuple(filter(os.path.exists, self._cdi(inventory)))
        except AliquotError as error:
            text = f"no CDI document was written: {error.brief}"
            if text != self.problem:
                log.error("%s", text)
            return text
        return ""

    async def _offer(self, o: Observation, inventory: Inventory, facts: Facts) -> None:
        if self._offering is None:
            return
        made = offer(inventory, facts, o.settings.strategy, unhealthy=o.unhealthy)
        for sentence in made.refusals:
            if sentence not in self._refusals:
                log.warning("%s", sentence)
        self._refusals = made.refusals
        await self._offering.publish(made, o.settings)
        self._offering.release()  # not before: what was destroyed must not look healthy in between
        said = ", ".join(f"{r.name} {len(r.devices)}" for r in made.resources) if o.settings.device_plugin else ""
        log.info("offered to kubelet: %s", said or "nothing")

    async def _label(self, o: Observation, inventory: Inventory, facts: Facts) -> None:
        wanted = self._wanted = labels(inventory, facts, o.settings.strategy, now=int(time.time()))

        def difference(marks: Marks) -> NodePatch:
            patch: dict[str, str | None] = {n: v for n, v in wanted.items() if marks.labels.get(n) != v}
            patch |= {n: None for n in marks.labels if owned(n) and n not in wanted}
            # A new time stamp alone is no news.
            return NodePatch(patch) if set(patch) - {_TIMESTAMP} else NodePatch()

        await self.corner.change(difference)

    async def _generated(self, inventory: Inventory) -> None:
        """The named configs of this node as a ConfigMap, where people look them up."""
        try:
            text = _HEADER + generated(inventory)
        except BlockedError as error:
            log.info("no configs are generated for this node: %s", error.brief)
            return
        if text == self._written:
            return
        body: dict[str, Any] = {
            "metadata": {
                "name": self.place.generated_map,
                "labels": {
                    "app.kubernetes.io/component": "nvidia-mig-manager",
                    "nvidia.com/node-name": self.place.node[:63].rstrip("-_."),
                },
            },
            "data": {DATA_KEY: text},
        }
        if self._owner is not None:
            body["metadata"]["ownerReferences"] = [self._owner]
        await self.corner.put_map(self.place.generated_map, body)
        self._written = text
