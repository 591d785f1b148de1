"""Reads of ``aliquot dra check``: each kind of object once, with a finding where that fails."""

from __future__ import annotations

from typing import Any

from aliquot.cli.doctor.finding import DoctorFinding, Status, failed
from aliquot.cli.dra.check_facts import AGENT_LABELS, DraFacts
from aliquot.cli.dra.check_server import FIRST, SERVER
from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
from aliquot.kubernetes.client.errors import ApiError, ApiUnavailableError, NotFoundError, UnauthorizedError
from aliquot.kubernetes.client.objects import Node, Pod
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.model.naming import DriverNaming
from aliquot.kubernetes.dra.model.objects import DeviceClass, ResourceSlice


async def read(api: Api, driver: str) -> tuple[DraFacts, list[DoctorFinding]]:
    """Read the objects, with a finding for each kind that cannot be read.

    Raises ApiUnavailableError and UnauthorizedError, after which nothing else could be read.
    """
    requests: dict[str, Any] = {
        "version": api.version,
        "slices": lambda: api.list(ResourceSlice),
        "claims": lambda: api.list(ResourceClaim, ALL_NAMESPACES),
        "classes": lambda: api.list(DeviceClass),
        "nodes": lambda: api.list(Node),
        "agents": lambda: api.list(Pod, ALL_NAMESPACES, labels=AGENT_LABELS),
    }
    unread: dict[str, DoctorFinding] = {}
    found: dict[str, Any] = dict.fromkeys(requests)
    for name, request in requests.items():
        try:
            found[name] = await request()
        except (ApiUnavailableError, UnauthorizedError):
            raise
        except NotFoundError as error:
            if name in ("slices", "claims", "classes"):
                unread["api"] = _not_served(api.server)
            else:
                unread[name] = failed(SERVER, "READ", error, what=f"{name} not read")
        except ApiError as error:
            status: Status = "note" if name == "version" else "problem"
            unread[name] = failed(SERVER, "READ", error, what=f"{name} not read", status=status)
    facts = DraFacts(DriverNaming(driver), **found)
    if facts.version is not None and (0, 0) < facts.release < FIRST:
        unread.pop("api", None)  # the finding about the release says it
    return facts, list(unread.values())


def _not_served(server: str) -> DoctorFinding:
    message = f"{server} does not serve resource.k8s.io/v1: nothing about claims can be checked"
    step = "set --runtime-config=resource.k8s.io/v1=true on kube-apiserver"
    return DoctorFinding(SERVER, "DRA_API", "problem", message, next_step=step)
