"""Deletion of the objects of removed nodes. Claims do not wait for their agent, which no longer exists."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.virtual_machines.controller.informers import VmClusterInformers
from aliquot.kubernetes.virtual_machines.harvester.orphaned_objects import Orphan, orphans
from aliquot.metrics.controller_metrics import ControllerMetrics

PATIENCE_S = 30.0
"""Seconds before the deletion: a kubelet that only registers again must not lose the requests in its objects."""


class NodeCleanup:
    """The cleanup. ``clock`` counts seconds."""

    def __init__(
        self,
        api: Api,
        informers: VmClusterInformers,
        metrics: ControllerMetrics,
        *,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.api, self._informers, self._metrics = api, informers, metrics
        self._patience_s, self._clock = patience_s, clock
        self._missing_since: dict[str, float] = {}

    async def run(self, leads: Callable[[], bool]) -> float | None:
        """Remove the objects that are due.

        Return the seconds until something is due or should be tried again; None if nothing is left.
        """
        informers, now = self._informers, self._clock()
        gpu_informers = (informers.claims, informers.vgpus, informers.migs, informers.gpus, informers.functions)
        object_informers = (*gpu_informers, informers.usb_claims, informers.usb, informers.network)
        found = orphans(
            informers.nodes.by_name.keys(), [item for informer in object_informers for item in informer.items]
        )
        missing = {each.node for each in found}
        self._missing_since = {node: self._missing_since.get(node, now) for node in missing}
        waits = []
        for node in sorted(missing):
            remaining_s = self._missing_since[node] + self._patience_s - now
            if remaining_s > 0:
                waits.append(remaining_s)
            elif not await self._remove_objects(node, [each for each in found if each.node == node], leads):
                waits.append(self._patience_s)
        return min(waits, default=None)

    async def _remove_objects(self, node: str, found: Sequence[Orphan], leads: Callable[[], bool]) -> bool:
        """Remove the objects of a node. Return False if something has to be tried again."""
        try:
            await self.api.get(Node, node)
        except NotFoundError:
            pass
        except ApiError as error:
            log.warning("node %s: %s", node, error.brief)
            return False
        else:
            return False  # the node exists: the watch is behind
        log.info("node %s was removed: removing its %d objects", node, len(found))
        done = True
        for orphan in found:
            if not leads():
                return True
            done &= await self._remove(orphan)
        return done

    async def _remove(self, orphan: Orphan) -> bool:
        """Remove an object, only if it is still the one that was read. Return False if it has to be tried again."""
        try:
            if orphan.finalizers is not None:
                meta = {"resourceVersion": orphan.version, "finalizers": list(orphan.finalizers)}
                await self.api.patch(orphan.kind, orphan.name, {"metadata": meta})
            if not orphan.deleting:
                await self.api.delete(orphan.kind, orphan.name, uid=orphan.uid)
        except NotFoundError:
            return True
        except ConflictError:
            return False
        except ApiError as error:
            log.warning("%s", "; ".join((error.brief, *error.details)))
            self._metrics.count_failure("removal")
            return False
        self._metrics.count_write("removal")
        return True
