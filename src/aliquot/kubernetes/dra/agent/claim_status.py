"""The state of prepared claims in ``status.devices`` of their ResourceClaims: the devices, and why one does not work.

Kubernetes 1.36 checks these writes by driver and node: verb ``associated-node:patch`` on ``resourceclaims/driver``.
Source: k8s.io/api resource/v1/types.go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from aliquot.core.model.encoding import to_builtins
from aliquot.core.model.inventory import Inventory
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.client.events import rfc3339
from aliquot.kubernetes.client.object_base import Condition
from aliquot.kubernetes.dra.agent.claim_informer import ClaimInformer
from aliquot.kubernetes.dra.agent.claim_store import device_exists
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.plugin.claim_service import DeviceState
from aliquot.node.holders.prepared_claims import RecordedClaim, RecordedDevice

Entry = Mapping[str, Any]
"""The entry of one device in ``status.devices``."""
Key = tuple[str, str]
READY = "Ready"
MESSAGE_LIMIT = 1024
"""Characters of a condition's message that we write. The API server takes 32,768."""


class ClaimProblems(msgspec.Struct, frozen=True):
    """The reasons for which devices of prepared claims do not work."""

    inventory: Inventory
    boot: str
    missing: Mapping[str, str]
    """For the uid of each claim that lost a device: why Aliquot cannot create it again."""
    health: Mapping[tuple[str, str], DeviceState]
    """The health of devices by pool and name."""

    def of(self, claim: RecordedClaim, device: RecordedDevice) -> tuple[str, str] | None:
        """Return the reason and the message for a device that does not work; None if it works."""
        if claim.uid in self.missing:
            why = self.missing[claim.uid] or "Aliquot creates it again"
            if not device_exists(device, self.inventory):
                return "DeviceMissing", f"{device.uuid} does not exist any more: {why}"
            if claim.boot != self.boot:
                return "NotPrepared", f"the claim is not prepared again after a reboot: {why}"
        state = self.health.get((device.pool, device.device))
        if state is not None and not state.healthy:
            return "DeviceUnhealthy", f"{device.uuid}: {state.message}"
        return None


class ClaimStatusWriter:
    """Writes what differs, and nothing for an idle node. A failure is logged and never stops the agent."""

    def __init__(self, api: Api, claims: ClaimInformer, driver: str, clock: Callable[[], float] = time.time) -> None:
        self._api = api
        self._claims = claims
        self._driver = driver
        self._clock = clock
        self._failure = ""

    async def write(self, recorded: Iterable[RecordedClaim], problems: ClaimProblems) -> None:
        """Make the claims of this node show the devices that are prepared for them."""
        if not self._claims.current:
            return
        prepared = {claim.uid: claim for claim in recorded}
        failure = ""
        for claim in self._claims.claims.items:
            shown = {(each["pool"], each["device"]): each for each in claim.status.devices if self._is_ours(each)}
            wanted = self._entries(claim, prepared.get(claim.metadata.uid), shown, problems)
            if wanted != shown:
                failure = await self._patch(claim, wanted.values()) or failure
        if failure and failure != self._failure:
            log.warning("claims do not show their devices: %s", failure)
        self._failure = failure

    def _entries(
        self, claim: ResourceClaim, prepared: RecordedClaim | None, shown: Mapping[Key, Entry], problems: ClaimProblems
    ) -> dict[Key, Entry]:
        """Return the entries that the claim should have for this node, by pool and device."""
        if prepared is None:
            return {}
        allocated = {(result.pool, result.device) for result in claim.results if result.driver == self._driver}
        keyed = {(device.pool, device.device): device for device in prepared.devices}
        return {
            key: self._entry(device, problems.of(prepared, device), shown.get(key))
            for key, device in keyed.items()
            if key in allocated
        }

    def _is_ours(self, entry: Entry) -> bool:
        return bool(entry["driver"] == self._driver and self._claims.is_own_pool(entry["pool"]))

    def _entry(self, device: RecordedDevice, problem: tuple[str, str] | None, previous: Entry | None) -> Entry:
        value = "True" if problem is None else "False"
        reason, message = problem or ("Prepared", _given(device))
        conditions = previous.get("conditions", ()) if previous is not None else ()
        same = (c["lastTransitionTime"] for c in conditions if (c["type"], c["status"]) == (READY, value))
        since = next(same, None) or rfc3339(self._clock())
        data = {"uuid": device.uuid, "gpuUUID": device.gpu}
        if device.placement:
            data["placement"] = device.placement
        if device.function:
            data["function"] = device.function
        condition = to_builtins(Condition(READY, value, reason, message[:MESSAGE_LIMIT], since))
        key = {"driver": self._driver, "pool": device.pool, "device": device.device}
        return key | {"conditions": [condition], "data": data}

    async def _patch(self, claim: ResourceClaim, entries: Iterable[Entry]) -> str:
        """Write our entries beside those of others, unless the claim changed meanwhile.

        Return why it failed; empty if it did not.
        """
        meta = claim.metadata
        others = (each for each in claim.status.devices if not self._is_ours(each))
        body: dict[str, Any] = {
            "metadata": {"resourceVersion": meta.resource_version, "uid": meta.uid},
            "status": {"devices": [*others, *entries]},
        }
        try:
            written = await self._api.patch(
                ResourceClaim, meta.name, body, namespace=meta.namespace, subresource="status"
            )
            self._claims.claims.record_write(claim, written)
        except (ConflictError, NotFoundError):
            pass  # the next cycle sees the claim as it is then
        except ApiError as error:
            return error.one_line
        return ""


def _given(device: RecordedDevice) -> str:
    """Return who gets a device, as a sentence."""
    if device.vm:
        return f"VMs of the claim get {device.vm} on {device.function or device.uuid}"
    return f"containers of the claim get {device.uuid}"
