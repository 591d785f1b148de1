"""Making one resource known to kubelet."""

from __future__ import annotations

import os

from grpclib.exceptions import GRPCError

from aliquot.kubernetes.device_plugin.errors import KubeletUnavailableError, OfferError
from aliquot.kubernetes.device_plugin.grpc_sockets import NoReplyError, call_socket
from aliquot.kubernetes.device_plugin.protos import deviceplugin_pb2 as pb
from aliquot.kubernetes.device_plugin.protos.deviceplugin_grpc import RegistrationStub
from aliquot.kubernetes.device_plugin.service import OPTIONS

KUBELET_SOCKET = "kubelet.sock"
API_VERSION = "v1beta1"


async def register(directory: str, endpoint: str, resource: str, timeout_s: float) -> None:
    """Tell kubelet that ``endpoint``, a socket in its directory, serves a resource. Kubelet dials back before it
    answers. Raises KubeletAwayError where it does not answer in time, OfferError where it refuses.
    """
    path = os.path.join(directory, KUBELET_SOCKET)
    request = pb.RegisterRequest(version=API_VERSION, endpoint=endpoint, resource_name=resource, options=OPTIONS)
    try:
        await call_socket(
            path, timeout_s, lambda channel: RegistrationStub(channel).Register(request, timeout=timeout_s)
        )
    except NoReplyError as failure:
        raise KubeletUnavailableError(
            f"kubelet does not answer on {path}: {failure}", next_step="systemctl status kubelet"
        ) from failure
    except GRPCError as failure:
        raise OfferError(
            f"kubelet refused {resource}: {failure.message}", next_step="journalctl -u kubelet | grep device"
        ) from failure
