"""What others learn of the GPUs, after each change at once: labels, device plugins, CDI documents, named configs."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError, BlockedError
from aliquot.foundation.logfmt import NewWarnings
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.errors import ApiError, ApiUnavailableError, ConflictError
from aliquot.kubernetes.gpu.config_label import DATA_KEY
from aliquot.kubernetes.gpu.device_resources import offer
from aliquot.kubernetes.gpu.gfd_labels import is_own_label, labels
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks, NodePatch
from aliquot.kubernetes.label_agent.agent.node_informer import NodeInformer
from aliquot.kubernetes.label_agent.agent.observation import Observation
from aliquot.kubernetes.label_agent.agent.observer import generated
from aliquot.kubernetes.label_agent.agent.settings import AgentSetup
from aliquot.kubernetes.node_agent.device_offering import DeviceOffering
from aliquot.kubernetes.node_agent.pod_holders import Uses

_TIMESTAMP = "nvidia.com/gfd.timestamp"
_HEADER = "# Made by Aliquot from the GPUs of this node, and made again when they change. Do not edit.\n"


class Publisher:
    """``cdi`` writes CDI documents for an inventory, None where they are somebody else's; ``facts`` gives the facts of
    the last look; ``owner`` is the agent's own pod, with which the generated configs go. ``problem`` is what somebody
    refuses to be published, "" if nothing.
    """

    def __init__(
        self,
        informer: NodeInformer,
        setup: AgentSetup,
        facts: Callable[[], Facts | None],
        *,
        offering: DeviceOffering,
        cdi: Callable[[Inventory], tuple[str, ...]] | None,
        uses: Uses | None,
        owner: dict[str, Any] | None = None,
    ) -> None:
        self.informer = informer
        self.setup = setup
        self.offering = offering
        self.uses = uses
        self._facts = facts
        self._cdi = cdi
        self._owner = owner
        self._refusals = NewWarnings(log)
        self._wanted: dict[str, str] = {}
        self._written = ""
        self._paths: tuple[str, ...] = ()
        self.problem = ""

    async def publish(self, observation: Observation) -> str:
        """Makes everything follow the inventory; the key of what was published. Raises ApiUnavailableError and
        ConflictError; the devices were offered by then: kubelet needs no API server. What somebody refuses is kept as
        ``problem``, for nobody's operands must wait for it.
        """
        facts = self._facts()
        assert observation.inventory is not None
        assert facts is not None
        usable = msgspec.structs.replace(
            observation.inventory,
            gpus=tuple(gpu for gpu in observation.inventory.gpus if gpu.pci not in observation.reserved),
        )
        self.problem = self._write_cdi(usable)
        await self._offer(observation, usable, facts)
        if observation.settings.labels:
            await self._try(self._write_labels(observation, observation.inventory, facts))
        await self._try(self._write_generated_configs(observation.inventory))
        return observation.key

    async def retry_refused(self, observation: Observation) -> None:
        """Tries again what was refused. Raises ApiError."""
        pending = (
            self.problem
            or (observation.settings.labels and self._labels_differ())
            or not all(map(os.path.exists, self._paths))
        )
        if observation.inventory is not None and pending:
            await self.publish(observation)

    def _labels_differ(self) -> bool:
        """True if somebody changed what we wrote."""
        current = self.informer.marks.labels
        return any(current.get(n) != v for n, v in self._wanted.items() if n != _TIMESTAMP)

    async def _try(self, writing: Awaitable[None]) -> None:
        try:
            await writing
        except (ApiUnavailableError, ConflictError):
            raise
        except ApiError as error:
            self.problem = error.one_line
            log.warning("not published: %s", self.problem)

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

    async def _offer(self, observation: Observation, inventory: Inventory, facts: Facts) -> None:
        if not self.offering.directory:
            return
        settings = observation.settings
        offered = offer(inventory, facts, settings.strategy, unhealthy=observation.unhealthy)
        self._refusals.update(offered.refusals)
        summary = ""
        if settings.device_plugin:
            cdi = settings.cdi and self._cdi is not None
            await self.offering.publish(offered, cdi=cdi, env=settings.env, device_nodes=settings.device_nodes)
            summary = ", ".join(f"{r.name} {len(r.devices)}" for r in offered.resources)
        else:
            await self.offering.close()
        self.offering.release()  # not before: what was destroyed must not look healthy in between
        log.info("offered to kubelet: %s", summary or "nothing")

    async def _write_labels(self, observation: Observation, inventory: Inventory, facts: Facts) -> None:
        wanted = self._wanted = labels(inventory, facts, observation.settings.strategy, now=int(time.time()))

        def difference(marks: NodeMarks) -> NodePatch:
            patch: dict[str, str | None] = {n: v for n, v in wanted.items() if marks.labels.get(n) != v}
            patch |= {n: None for n in marks.labels if is_own_label(n) and n not in wanted}
            # A new time stamp alone is no news.
            return NodePatch(patch) if set(patch) - {_TIMESTAMP} else NodePatch()

        await self.informer.change(difference)

    async def _write_generated_configs(self, inventory: Inventory) -> None:
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
                "name": self.setup.generated_map,
                "labels": {
                    "app.kubernetes.io/component": "nvidia-mig-manager",
                    "nvidia.com/node-name": self.setup.node[:63].rstrip("-_."),
                },
            },
            "data": {DATA_KEY: text},
        }
        if self._owner is not None:
            body["metadata"]["ownerReferences"] = [self._owner]
        await self.informer.write_config_map(self.setup.generated_map, body)
        self._written = text
