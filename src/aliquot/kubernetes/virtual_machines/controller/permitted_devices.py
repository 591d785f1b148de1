"""Updates of KubeVirt's permitted devices, in the only settings object of the cluster."""

from __future__ import annotations

from collections.abc import Callable

from aliquot.foundation.logfmt import NewWarnings
from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.virtual_machines.controller.informers import VmClusterInformers
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import foreign_nodes
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import demands
from aliquot.kubernetes.virtual_machines.kubevirt.permitted_devices import (
    KubeVirtSettings,
    WantedEntries,
    foreign_conflicts,
    patch,
    wanted_entries,
)
from aliquot.metrics.controller_metrics import ControllerMetrics


class PermittedDevicesWriter:
    """The writer of permitted devices. It writes only the difference to what our nodes' objects make."""

    def __init__(self, api: Api, informers: VmClusterInformers, metrics: ControllerMetrics) -> None:
        self.api, self._informers, self._metrics = api, informers, metrics
        self._warnings = NewWarnings(log)

    async def run(self, leads: Callable[[], bool]) -> bool:
        """Write the differences. Return False if something has to be tried again."""
        want = self._wanted_entries()
        done = True
        for name, settings in sorted(self._informers.kubevirts.by_name.items()):
            self._warnings.update(foreign_conflicts(settings, want))
            body = patch(settings, want)
            if body and leads():
                done &= await self._write(name, settings, body)
        return done

    def _wanted_entries(self) -> WantedEntries:
        informers = self._informers
        running, waiting, _ = demands(informers.vms.items, informers.instances.items)
        used = {resource for each in (*running, *waiting) for resource in each.counts}
        foreign = foreign_nodes(informers.nodes.items)
        claimed_usb = [each for each in informers.usb.items if each.name in informers.usb_claims.by_name]
        gpus = (informers.vgpus.items, informers.functions.items, informers.claims.items)
        return wanted_entries(*gpus, used, foreign, claimed_usb)

    async def _write(self, name: str, settings: KubeVirtSettings, body: dict[str, object]) -> bool:
        try:
            written = await self.api.patch(KubeVirtSettings, name, body, namespace=self._informers.namespace)
        except NotFoundError:
            return True
        except ConflictError:
            return False  # another client changed it meanwhile: the next round reads the change
        except ApiError as error:
            log.warning("%s", "; ".join((error.brief, *error.details)))
            self._metrics.count_failure("kubevirt")
            return False
        log.info("updated KubeVirt's permitted devices to match what the nodes offer")
        self._informers.kubevirts.record_write(settings, written)
        self._metrics.count_write("kubevirt")
        return True
