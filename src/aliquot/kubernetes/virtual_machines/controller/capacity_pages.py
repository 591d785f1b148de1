"""HTTP pages for pollers: capacity, whether VMs fit, and the same in Harvester's form for Rancher."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from aliquot.errors import AliquotError, ConfigError
from aliquot.foundation.decimals import decimal
from aliquot.foundation.http_server import Answer, Page
from aliquot.kubernetes.virtual_machines.controller.claim_informers import VmClaimInformers
from aliquot.kubernetes.virtual_machines.controller.informers import VmClusterInformers
from aliquot.kubernetes.virtual_machines.kubevirt import capacity_document as poll
from aliquot.kubernetes.virtual_machines.kubevirt import rancher
from aliquot.kubernetes.virtual_machines.kubevirt.capacity import is_vm_gpu_resource
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand
from aliquot.kubernetes.virtual_machines.kubevirt.fit import explain_fit

_JSON = "application/json"
_KNOWN = ("namespace", "cluster", "pool", "machines", "vgpuInfo", "hostDeviceInfo", "resource", "count")


class CapacityPages:
    """The pages, in ``by_path``. Until the informers have synced they answer 503, so that a poller does not read
    zero.
    """

    def __init__(self, informers: VmClusterInformers, claims: VmClaimInformers) -> None:
        self._informers, self._claims = informers, claims
        self.by_path: dict[str, Page] = {
            "/v1/capacity": self._guarded(self._capacity),
            "/v1/capacity/fit": self._guarded(self._fit),
        }
        for path in ("/v1/harvester/cluster", "/v1/harvester/clusters"):
            self.by_path[path] = self._guarded(lambda _, path=path: poll.clusters(path))  # type: ignore[misc]
            self.by_path[f"{path}/{poll.CLUSTER}"] = self._guarded(self._cluster(f"{path}/{poll.CLUSTER}"))

    def _capacity(self, query: Mapping[str, str]) -> object:
        return poll.document(self._informers.capacity(), query.get("resource", ""), self._claims.classes())

    def _fit(self, query: Mapping[str, str]) -> object:
        """Answer a fit question. Raise ConfigError if the question is invalid."""
        unknown = sorted(set(query) - set(_KNOWN))
        if unknown:
            raise ConfigError(f"{', '.join(unknown)}: unknown parameter", details=(f"known are {', '.join(_KNOWN)}",))
        counts = rancher.requests(query.get("vgpuInfo", ""), query.get("hostDeviceInfo", ""))
        if resource := query.get("resource"):
            if not is_vm_gpu_resource(resource):
                raise ConfigError(f"{resource} is not counted here", details=("a vGPU is nvidia.com/NVIDIA_A2-4Q",))
            counts[resource] = _number(query, "count")
        if not counts:
            raise ConfigError("no device is requested", details=("set resource=..., or vgpuInfo={...}",))
        capacity, vm_count = self._informers.capacity(), _number(query, "machines")
        namespace, name = query.get("namespace", "default"), query.get("pool", "")
        if query.get("cluster"):
            pool = rancher.machine_pool(namespace, query["cluster"], vm_count, counts, name)
            return poll.fit_document(rancher.fit_pools(capacity, [pool]))
        rancher.check_vm_count(vm_count)
        wanted = [VmDemand(namespace, f"(new {number})", counts) for number in range(vm_count)]
        return poll.fit_document(explain_fit(capacity, wanted))

    def _cluster(self, path: str) -> Callable[[Mapping[str, str]], object]:
        def page(query: Mapping[str, str]) -> object:
            if query.get("link", "") in ("deviceCapacity", "machineTypes"):
                # Harvester answers both links with the same amounts.
                return poll.remaining_by_resource(self._informers.nodes.items, self._informers.capacity())
            return poll.cluster(path)

        return page

    def _guarded(self, page: Callable[[Mapping[str, str]], object]) -> Page:
        def answer(query: Mapping[str, str]) -> Answer:
            if not self._informers.synced:
                missing = self._informers.unavailable or "some objects were not read yet"
                return Answer(503, _JSON, _error_body(f"{missing}: try again in a moment"))
            try:
                return Answer(200, _JSON, msgspec.json.encode(page(query)))
            except AliquotError as error:
                return Answer(400, _JSON, _error_body(": ".join((error.brief, *error.details))))

        return answer


def _number(query: Mapping[str, str], name: str) -> int:
    """Return a parameter's number; 1 if the parameter is missing."""
    text = query.get(name, "1")
    number = decimal(text, 6)
    if number is None:
        raise ConfigError(f"{name}={text[:20]} is not a number")
    return number


def _error_body(sentence: str) -> bytes:
    return msgspec.json.encode({"apiVersion": poll.API_VERSION, "kind": "Error", "message": sentence})
