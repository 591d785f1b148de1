"""Keeps KubeVirt's permitted devices true, in the one settings object of the cluster."""

from __future__ import annotations

from collections.abc import Callable

from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.virtual_machines.controller.informers import World
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import foreign_nodes
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import demands
from aliquot.kubernetes.virtual_machines.kubevirt.permitted_devices import Settings, Wanted, foreign, patch, wanted
from aliquot.metrics.controller_metrics import Tally


class Permit:
    """Writes the difference between what our nodes' objects make and what is permitted, and nothing else."""

    def __init__(self, api: Api, world: World, tally: Tally) -> None:
        self.api, self._world, self._tally = api, world, tally
        self._said: tuple[str, ...] = ()

    async def run(self, leads: Callable[[], bool]) -> bool:
        """False if something has to be tried again."""
        want = self._wanted()
        done = True
        for name, settings in sorted(self._world.kubevirts.items.items()):
            self._say(foreign(settings, want))
            body = patch(settings, want)
            if body and leads():
                done &= await self._write(name, settings, body)
        return done

    def _wanted(self) -> Wanted:
        world = self._world
        running, waiting, _ = demands(world.machines.items.values(), world.instances.items.values())
        used = {resource for each in (*running, *waiting) for resource in each.counts}
        foreign = foreign_nodes(world.nodes.items.values())
        vgpus, functions, claims = world.vgpus.items, world.functions.items, world.claims.items
        return wanted(vgpus.values(), functions.values(), claims.values(), used, foreign)

    async def _write(self, name: str, settings: Settings, body: dict[str, object]) -> bool:
        try:
            written = await self.api.patch(Settings, name, body, namespace=self._world.namespace)
        except NotFoundError:
            return True
        except ConflictError:
            return False  # somebody else changed it meanwhile: the next look takes that in
        except ApiError as error:
            log.warning("%s", "; ".join((error.brief, *error.details)))
            self._tally.failed("kubevirt")
            return False
        log.info("KubeVirt's permitted devices were brought in line with what the nodes offer")
        self._world.kubevirts.keep(settings, written)
        self._tally.wrote("kubevirt")
        return True

    def _say(self, sentences: tuple[str, ...]) -> None:
        for sentence in sentences:
            if sentence not in self._said:
                log.warning("%s", sentence)
        self._said = sentences
