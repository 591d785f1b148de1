"""The gRPC services of a DRA driver. Each is thin: it turns messages into values, and back.

Kubelet shows the error of a claim in an event of its pod, and tries again. So an error is the sentence and the next
command, and one bad claim never fails the others of a call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from grpclib.const import Handler
from grpclib.server import Stream

from aliquot.errors import AliquotError, BlockedError, Message
from aliquot.foundation.event_wait import wait_for_event
from aliquot.kubernetes.dra.plugin.claim_service import ClaimReference, ClaimService, DeviceState, PreparedClaim
from aliquot.kubernetes.dra.plugin.protos import dra_pb2, health_pb2, registration_pb2
from aliquot.kubernetes.dra.plugin.protos.dra_grpc import DRAPluginBase
from aliquot.kubernetes.dra.plugin.protos.health_grpc import DRAResourceHealthBase
from aliquot.kubernetes.dra.plugin.protos.registration_grpc import RegistrationBase

SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth")
"""What the endpoint serves, newest first, as the registration names it."""
HEALTH_VALID_S = 90
"""Seconds after which kubelet takes the health of a device for unknown."""
HEALTH_REPEAT_S = 30.0
CLAIM_TIMEOUT_S = 40.0
"""Seconds for a call. Kubelet gives up after 45, with an error that says nothing about the GPUs."""
LONGEST_ERROR = 1000
"""Characters of an error. An event has room for 1,024, and kubelet adds a few words."""

T = TypeVar("T")


class ClaimTimeoutError(BlockedError):
    """A call about claims takes longer than kubelet waits."""

    code = "CLAIM_TIMEOUT"


NOT_ASKED = "kubelet has not asked for the DRA driver yet"


class RegistrationService(RegistrationBase):
    """Tells kubelet what the endpoint is, and hears whether kubelet accepts it.

    ``problem`` is why kubelet does not use the driver now; empty once it does.
    """

    def __init__(self, driver: str, endpoint: str, changed: Callable[[], None]) -> None:
        self.problem = NOT_ASKED
        self._info = registration_pb2.PluginInfo(
            type="DRAPlugin", name=driver, endpoint=endpoint, supported_versions=SERVICES
        )
        self._changed = changed

    async def GetInfo(self, stream: Stream[registration_pb2.InfoRequest, registration_pb2.PluginInfo]) -> None:
        await stream.recv_message()
        await stream.send_message(self._info)

    async def NotifyRegistrationStatus(
        self, stream: Stream[registration_pb2.RegistrationStatus, registration_pb2.RegistrationStatusResponse]
    ) -> None:
        status = await stream.recv_message() or registration_pb2.RegistrationStatus(error="an empty message")
        refused = f"kubelet refused the DRA driver {self._info.name}: {status.error or 'no reason given'}"
        self.problem = "" if status.plugin_registered else refused
        await stream.send_message(registration_pb2.RegistrationStatusResponse())
        self._changed()


class ClaimsService(DRAPluginBase):
    """The calls of kubelet about claims, in API version v1."""

    def __init__(self, claims: ClaimService) -> None:
        self._claims = claims

    async def NodePrepareResources(
        self, stream: Stream[dra_pb2.NodePrepareResourcesRequest, dra_pb2.NodePrepareResourcesResponse]
    ) -> None:
        wanted = _references(await stream.recv_message())
        answers = await _in_time(self._claims.prepare(wanted), wanted)
        response = dra_pb2.NodePrepareResourcesResponse()
        for claim in wanted:
            response.claims[claim.uid].CopyFrom(_prepared(answers.get(claim.uid)))
        await stream.send_message(response)

    async def NodeUnprepareResources(
        self, stream: Stream[dra_pb2.NodeUnprepareResourcesRequest, dra_pb2.NodeUnprepareResourcesResponse]
    ) -> None:
        wanted = _references(await stream.recv_message())
        answers = await _in_time(self._claims.unprepare(wanted), wanted)
        response = dra_pb2.NodeUnprepareResourcesResponse()
        for claim in wanted:
            error = answers.get(claim.uid, _NO_ANSWER)
            response.claims[claim.uid].error = _shown(error) if error is not None else ""
        await stream.send_message(response)


class ClaimsServiceV1Beta1(ClaimsService):
    """The same calls as kubelet makes them in API version v1beta1, whose messages are the same."""

    def __mapping__(self) -> dict[str, Handler]:
        return {path.replace(".dra.v1.", ".dra.v1beta1."): handler for path, handler in super().__mapping__().items()}


class HealthService(DRAResourceHealthBase):
    """Streams the health of devices to kubelet: at once after a change, and again before kubelet forgets it."""

    def __init__(self, repeat_s: float = HEALTH_REPEAT_S) -> None:
        self._states: Mapping[tuple[str, str], DeviceState] = {}
        self._changed = asyncio.Event()
        self._repeat_s = repeat_s

    def publish(self, states: Mapping[tuple[str, str], DeviceState]) -> None:
        """Replace the states, which are by pool and device name."""
        if states != self._states:
            self._states = dict(states)
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    async def NodeWatchResources(
        self, stream: Stream[health_pb2.NodeWatchResourcesRequest, health_pb2.NodeWatchResourcesResponse]
    ) -> None:
        await stream.recv_message()
        while True:
            changed = self._changed
            await stream.send_message(self._response())
            await wait_for_event(changed, self._repeat_s)

    def _response(self) -> health_pb2.NodeWatchResourcesResponse:
        response = health_pb2.NodeWatchResourcesResponse()
        for (pool, device), state in sorted(self._states.items()):
            response.devices.add(
                device=health_pb2.DeviceIdentifier(pool_name=pool, device_name=device),
                health=health_pb2.HEALTHY if state.healthy else health_pb2.UNHEALTHY,
                last_updated_time=int(time.time()),
                health_check_timeout_seconds=HEALTH_VALID_S,
                message=state.message,
            )
        return response


_NO_ANSWER = AliquotError("internal error: the claim got no answer", next_step="journalctl -u kubelet")


async def _in_time(
    answers: Awaitable[Mapping[str, T]], claims: Sequence[ClaimReference]
) -> Mapping[str, T | AliquotError]:
    """Wait for answers until shortly before kubelet gives up. The work goes on: kubelet's next call finds it done."""
    task = asyncio.ensure_future(answers)
    done, _ = await asyncio.wait((task,), timeout=CLAIM_TIMEOUT_S)
    if done:
        return task.result()
    late = ClaimTimeoutError(
        f"the GPUs did not answer within {CLAIM_TIMEOUT_S:.0f} s; kubelet asks again", next_step="aliquot show"
    )
    return {claim.uid: late for claim in claims}


def _shown(error: AliquotError) -> str:
    """Return an error as the event of a pod has room for it."""
    return str(Message(error.brief, error.next_step or "").cut(LONGEST_ERROR))


def _references(
    request: dra_pb2.NodePrepareResourcesRequest | dra_pb2.NodeUnprepareResourcesRequest | None,
) -> tuple[ClaimReference, ...]:
    """Return the claims of a call, each once."""
    claims = () if request is None else request.claims
    return tuple(dict.fromkeys(ClaimReference(each.uid, each.namespace, each.name) for each in claims))


def _prepared(answer: PreparedClaim | AliquotError | None) -> dra_pb2.NodePrepareResourceResponse:
    response = dra_pb2.NodePrepareResourceResponse()
    if not isinstance(answer, PreparedClaim):
        response.error = _shown(answer or _NO_ANSWER)
        return response
    for device in answer.devices:
        response.devices.add(
            request_names=device.requests,
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=device.cdi_ids,
        )
    return response
