"""The state that admission reviews read, from the controller's informers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.virtual_machines.controller.informers import VmClusterInformers as Watched
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import VmClusterState
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand


class AdmissionState:
    """The cluster state for reviews. The controller follows ``informers``."""

    def __init__(self, informers: Watched, accounts: frozenset[str]) -> None:
        self._informers, self._accounts = informers, accounts

    @property
    def missing(self) -> str:
        """A sentence that names the kind that was not read yet; "" once reviews can be answered."""
        unknown = next((informer for informer in self._informers.all_informers if not informer.synced), None)
        return "" if unknown is None else unknown.unavailable or f"{unknown.kind.TYPE} were not read yet"

    def snapshot(self) -> AdmissionSnapshot:
        """Return the current content of the informers."""
        return msgspec.structs.replace(self._informers.snapshot(), accounts=self._accounts)

    async def fresh_snapshot(self, api: Api) -> AdmissionSnapshot:
        """Return the snapshot with VMs read from the API server instead of the watch. Raise ApiError if that fails."""
        return msgspec.structs.replace(await self._informers.fresh_snapshot(api), accounts=self._accounts)

    def cluster(self) -> VmClusterState:
        """Return the state that VMs are reviewed against."""
        return VmClusterState(self.snapshot(), self._permitted(), self._informers.capacity())

    @property
    def reserve(self) -> Callable[[VmDemand], None]:
        """Count an admitted VM against capacity immediately."""
        return self._informers.reserve

    def _permitted(self) -> frozenset[str] | None:
        """Return the permitted resources; None if no KubeVirt object exists."""
        found = self._informers.kubevirts.items
        lists = [(each.spec.configuration.permitted_host_devices or {}).values() for each in found]
        entries = [entry for those in lists for entry_list in those for entry in entry_list or ()]
        return frozenset(str(each.get("resourceName", "")) for each in entries) if found else None
