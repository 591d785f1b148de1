"""The two webhook configurations: filled in once the webhooks answer, and kept as this version wants them.

They are installed without webhooks. An object that is not there is reported, and never made: that would need the right
to make any webhook configuration.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, ClassVar

from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import NotFoundError
from aliquot.kubernetes.client.object_base import KubeObject, Part, ResourceType
from aliquot.kubernetes.manifests import webhooks
from aliquot.kubernetes.manifests.values import WEBHOOK, Values

JSON = dict[str, Any]
_GROUP = "admissionregistration.k8s.io"
_OURS = ".aliquot.dev"
_KEPT = ("failurePolicy", "timeoutSeconds", "namespaceSelector", "objectSelector", "reinvocationPolicy")
"""What an administrator may set otherwise in a webhook of ours."""


class Configuration(KubeObject, frozen=True):
    """What both kinds of webhook configurations have in common."""

    webhooks: tuple[JSON, ...] = ()


class Validating(Configuration, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType(
        _GROUP, "v1", "validatingwebhookconfigurations", webhooks.VALIDATING, namespaced=False
    )


class Mutating(Configuration, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType(
        _GROUP, "v1", "mutatingwebhookconfigurations", webhooks.MUTATING, namespaced=False
    )


class Subset(Part, frozen=True):
    """``addresses`` are those of pods that are ready."""

    addresses: tuple[JSON, ...] = ()


class Endpoints(KubeObject, frozen=True):
    """Where a Service leads."""

    TYPE: ClassVar[ResourceType] = ResourceType("", "v1", "endpoints", "Endpoints")

    subsets: tuple[Subset, ...] = ()


async def register(api: Api, trusted: bytes) -> tuple[str, ...]:
    """Writes our webhooks, with the authority of their certificate, into both configurations where they differ.
    The first time it waits until their Service has an address that answers. Returns what is missing, as sentences.
    Raises ApiError.
    """
    text = base64.b64encode(trusted).decode()
    wanted = webhooks.hooks(Values(namespace=api.namespace))
    missing: list[str] = []
    kinds: tuple[type[Configuration], ...] = (Validating, Mutating)
    for kind in kinds:
        name = kind.TYPE.kind
        try:
            found = await api.get(kind, WEBHOOK)
        except NotFoundError:
            step = "kubectl apply -f deploy/kubernetes-machines/33-webhooks.yaml, or helm upgrade"
            missing.append(f"there is no {name} {WEBHOOK}: nobody asks the webhooks | next: {step}")
            continue
        merged = merge(found.webhooks, wanted[name], text)
        if merged == list(found.webhooks):
            continue
        if not found.webhooks and not await _answers(api):
            missing.append(f"{name} {WEBHOOK} waits until Service {WEBHOOK} has an address that answers")
            continue
        version = {"op": "test", "path": "/metadata/resourceVersion", "value": found.metadata.resource_version}
        await api.patch(kind, WEBHOOK, [version, {"op": "add", "path": "/webhooks", "value": merged}], style="json")
        log.info("registered %s in %s %s", ", ".join(each["name"] for each in merged), name, WEBHOOK)
    return tuple(missing)


def merge(live: Sequence[JSON], ours: Sequence[JSON], authority: str) -> list[JSON]:
    """Return what a configuration should hold: our webhooks as this version has them, but for what an administrator may
    set and for a URL; those of others as they are, and none that only another version of ours had.
    """
    wanted = {hook["name"]: hook for hook in ours}
    merged = []
    for hook in live:
        name = str(hook.get("name", ""))
        if name in wanted:
            merged.append(_updated(hook, wanted.pop(name), authority))
        elif not name.endswith(_OURS):
            merged.append(hook)
    return merged + [_updated({}, hook, authority) for hook in wanted.values()]


def _updated(live: JSON, hook: JSON, authority: str) -> JSON:
    kept = {key: live[key] for key in _KEPT if key in live}
    reached = live.get("clientConfig", {})
    client = reached if "url" in reached else hook["clientConfig"]
    return {**live, **hook, **kept, "clientConfig": {**client, "caBundle": authority}}


async def _answers(api: Api) -> bool:
    try:
        found = await api.get(Endpoints, WEBHOOK)
    except NotFoundError:
        return False
    return any(each.addresses for each in found.subsets)
