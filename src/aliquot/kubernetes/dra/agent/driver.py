"""Assembly of a DRA driver from its settings."""

from __future__ import annotations

import os

import msgspec

from aliquot.cdi.options import CdiOptions
from aliquot.kubernetes.dra.agent.main import DraDriver, LocateDriver
from aliquot.kubernetes.dra.agent.node_devices import NodeDevices
from aliquot.kubernetes.dra.model.device import ModeChanges
from aliquot.kubernetes.dra.model.layout import SliceLayout
from aliquot.kubernetes.dra.model.naming import OWN_DRIVER, DriverNaming
from aliquot.kubernetes.dra.model.ranking import PublishPolicy, ScoreName
from aliquot.kubernetes.dra.model.vm_service import VmPolicy
from aliquot.kubernetes.dra.plugin.claim_documents import ClaimDocuments
from aliquot.kubernetes.dra.plugin.endpoint import DriverEndpoint, EndpointPaths

METADATA = "device-metadata"
"""The folder of metadata files below the driver's own, which kubelet's node has anyway."""


class DriverSettings(msgspec.Struct, frozen=True):
    """Settings of a DRA driver on a node."""

    driver: str = OWN_DRIVER
    node: str = ""
    kubelet_dir: str = "/var/lib/kubelet"
    cdi_dir: str = "/var/run/cdi"
    score: ScoreName = "fragmentation"
    mode_changes: ModeChanges = "without-reset"
    vms: VmPolicy = VmPolicy()
    """The GPUs that serve VMs."""


def dra_driver(settings: DriverSettings, cdi: CdiOptions, pod_uid: str = "") -> DraDriver:
    """Return the driver. With ``pod_uid``, its sockets have names of their own during a rolling update."""
    name = settings.driver
    # A GPU has up to 32 vGPUs, so a slice has room for those of one.
    layout = SliceLayout(gpus_per_slice=1) if settings.vms else SliceLayout()
    policy = PublishPolicy(score=settings.score, layout=layout)
    devices = NodeDevices(settings.node, DriverNaming(name), policy, settings.mode_changes, settings.vms)
    metadata = os.path.join(settings.kubelet_dir, "plugins", name, METADATA)

    def documents(locate: LocateDriver) -> ClaimDocuments:
        def options() -> CdiOptions:
            found = locate()
            return msgspec.structs.replace(cdi, driver_root=found.host, local_driver_root=found.local_root or "")

        return ClaimDocuments(name, settings.cdi_dir, options, metadata, devices.attributes)

    endpoint = DriverEndpoint(name, EndpointPaths.below(settings.kubelet_dir, name, pod_uid))
    return DraDriver(devices, endpoint, documents)
