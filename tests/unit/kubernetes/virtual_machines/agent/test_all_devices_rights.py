"""Without the rights of all devices, the agent's error names the file that has them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ApiUnavailableError, ForbiddenError
from aliquot.kubernetes.kinds.harvester import VGPUDevice
from aliquot.kubernetes.kinds.harvester_peripherals import SRIOVNetworkDevice, USBDevice, USBDeviceClaim
from aliquot.kubernetes.node_agent.own_node import OwnNode
from aliquot.kubernetes.virtual_machines.agent.informers import NodeDeviceInformers

FILE = "kubectl apply -f deploy/kubernetes-machines/optional/all-devices.yaml"
FORBIDDEN = ForbiddenError('user "u" lacks permission to list')


@pytest.mark.parametrize(
    ("kind", "error", "named"),
    [
        (USBDevice, FORBIDDEN, True),
        (USBDeviceClaim, FORBIDDEN, True),
        (SRIOVNetworkDevice, FORBIDDEN, True),
        (USBDevice, ApiUnavailableError("no answer"), False),
        (VGPUDevice, FORBIDDEN, False),
    ],
)
def test_the_file_with_the_rights_is_named(kind: Any, error: ApiError, named: bool) -> None:
    informers = NodeDeviceInformers(cast(Api, None), OwnNode("n1"), lambda: None, all_devices=True)
    informers.informer(kind.TYPE.kind).note_failure(error)
    assert informers.unavailable.startswith(error.brief)
    assert (FILE in informers.unavailable) == named
