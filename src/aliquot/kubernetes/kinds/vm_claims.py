"""ResourceClaims and their templates, reduced to what tells which devices a VM requests and has.

Source: k8s.io/api resource/v1/types.go (Kubernetes 1.34 to 1.36).
"""

from __future__ import annotations

from typing import ClassVar

from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject, ResourceType
from aliquot.kubernetes.kinds.claim_status import AllocationResult, ClaimObject

_GROUP = "resource.k8s.io"
POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
"""On a claim that Kubernetes made from a template: the name that the pod gives it."""
_LAUNCHER = "virt-launcher-"
_RANDOM, _LONGEST = 5, 58
"""The characters that Kubernetes appends to ``generateName``, and the most that it keeps of it."""


class RequestClass(ApiStruct, frozen=True):
    """A request, or one of its alternatives."""

    name: str = ""
    device_class_name: str = ""


class VmClaimRequest(ApiStruct, frozen=True):
    name: str = ""
    exactly: RequestClass | None = None
    first_available: tuple[RequestClass, ...] = ()

    def device_class(self, alternative: str = "") -> str:
        """Return the class that is requested. Of several alternatives, the named one or the first."""
        choices = self.first_available or ((self.exactly,) if self.exactly is not None else ())
        chosen = next((each for each in choices if each.name == alternative), choices[0] if choices else None)
        return chosen.device_class_name if chosen is not None else ""


class VmClaimDevices(ApiStruct, frozen=True):
    requests: tuple[VmClaimRequest, ...] = ()


class VmClaimSpec(ApiStruct, frozen=True):
    devices: VmClaimDevices = VmClaimDevices()


class VmClaim(ClaimObject, frozen=True):
    """A ResourceClaim."""

    TYPE: ClassVar[ResourceType] = ResourceType(_GROUP, "v1", "resourceclaims", "ResourceClaim")

    spec: VmClaimSpec = VmClaimSpec()

    def granted(self, request: str) -> AllocationResult | None:
        """Return the device that a request has; None if nothing is allocated to it."""
        return next((each for each in self.status.results if each.request.partition("/")[0] == request), None)

    def device_class(self, request: str) -> str:
        """Return the device class of a request; empty if the claim has no such request."""
        granted = self.granted(request)
        alternative = granted.request.partition("/")[2] if granted is not None else ""
        return class_of(self.spec, request, alternative)


class VmTemplateSpec(ApiStruct, frozen=True):
    spec: VmClaimSpec = VmClaimSpec()


class VmClaimTemplate(KubeObject, frozen=True):
    """A ResourceClaimTemplate."""

    TYPE: ClassVar[ResourceType] = ResourceType(_GROUP, "v1", "resourceclaimtemplates", "ResourceClaimTemplate")

    spec: VmTemplateSpec = VmTemplateSpec()


def class_of(spec: VmClaimSpec, request: str, alternative: str = "") -> str:
    """Return the device class of a request; empty if the claim has none of that name."""
    found = next((each for each in spec.devices.requests if each.name == request), None)
    return found.device_class(alternative) if found is not None else ""


def is_launcher(pod: str) -> bool:
    """Report whether a pod's name is that of one that runs a VM."""
    return pod.startswith(_LAUNCHER)


def launcher_stem(vm: str) -> str:
    """Return what the names of a VM's launcher pods have in common."""
    return f"{_LAUNCHER}{vm}-"[:_LONGEST]


def stem_of_pod(pod: str) -> str:
    """Return the name of a pod without what Kubernetes appended."""
    return pod[:-_RANDOM]
