"""The kubelet's side of the protocol, by grpcio: an implementation that shares nothing with the plugin's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from aliquot.kubernetes.device_plugin.protos import deviceplugin_pb2 as dp

DIAL_S = 10.0
SERVICE = "/v1beta1.DevicePlugin/"


class Plugin:
    """A connection to a device plugin. Raises grpc.RpcError, or grpc.FutureTimeoutError if it cannot be dialled."""

    def __init__(self, path: str, dial_s: float = DIAL_S) -> None:
        options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(f"unix:{path}", options=options)
        try:
            grpc.channel_ready_future(self._channel).result(timeout=dial_s)
        except grpc.FutureTimeoutError:
            self.close()
            raise
        self._stream: Any = None

    def _ask(self, method: str, request: Any, answer: Any, timeout: float | None = None) -> Any:
        call = self._channel.unary_unary(
            SERVICE + method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return call(request, timeout=timeout)

    def options(self) -> dp.DevicePluginOptions:
        answer: dp.DevicePluginOptions = self._ask("GetDevicePluginOptions", dp.Empty(), dp.DevicePluginOptions)
        return answer

    def watch(self) -> Iterator[dp.ListAndWatchResponse]:
        call = self._channel.unary_stream(
            SERVICE + "ListAndWatch",
            request_serializer=dp.Empty.SerializeToString,
            response_deserializer=dp.ListAndWatchResponse.FromString,
        )
        self._stream = call(dp.Empty())
        yield from self._stream

    def preferred(self, available: list[str], must: list[str], size: int) -> list[str]:
        request = dp.PreferredAllocationRequest()
        request.container_requests.add(available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size)
        answer = self._ask("GetPreferredAllocation", request, dp.PreferredAllocationResponse)
        return list(answer.container_responses[0].deviceIDs) if answer.container_responses else []

    def allocate(self, ids: list[str]) -> dp.ContainerAllocateResponse:
        request = dp.AllocateRequest()
        request.container_requests.add(devices_ids=ids)
        answer: dp.AllocateResponse = self._ask("Allocate", request, dp.AllocateResponse)
        return answer.container_responses[0]

    def unknown(self) -> None:
        """Call a method that no plugin implements."""
        self._ask("NoSuchMethod", dp.Empty(), dp.Empty)

    def close(self) -> None:
        self._channel.close()


def _unary(serve: Callable[[Any], Any], request: Any) -> Any:
    def act(message: Any, context: Any) -> Any:
        try:
            return serve(message)
        except ValueError as wrong:
            context.abort(grpc.StatusCode.UNKNOWN, str(wrong))

    return grpc.unary_unary_rpc_method_handler(
        act, request_deserializer=request.FromString, response_serializer=lambda answer: answer.SerializeToString()
    )


def serve(path: str, service: str, methods: dict[str, tuple[Callable[[Any], Any], Any]]) -> Any:
    """Serve on a socket. Each method is a function and the type of its request."""
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    handlers = {name: _unary(act, request) for name, (act, request) in methods.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    if not server.add_insecure_port(f"unix:{path}"):
        raise OSError(f"cannot serve {path}")
    server.start()
    return server


REGISTRATION = "v1beta1.Registration"
POD_RESOURCES = "v1.PodResourcesLister"
Register = tuple[Callable[[dp.RegisterRequest], dp.Empty], type[dp.RegisterRequest]]
