"""Registration of the webhooks in their two webhook configurations, and updates to the form of this version.

The configurations are installed without webhooks. A missing configuration is reported, not created: that would need the
right to create any webhook configuration.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, ClassVar

from aliquot.errors import Message
from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import NotFoundError
from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject, ResourceType
from aliquot.kubernetes.manifests import webhooks
from aliquot.kubernetes.manifests.values import WEBHOOK, Values

JSON = dict[str, Any]
_GROUP = "admissionregistration.k8s.io"
_OURS = ".aliquot.dev"
_ADMIN_FIELDS = ("failurePolicy", "timeoutSeconds", "namespaceSelector", "objectSelector", "reinvocationPolicy")
"""Fields that an administrator may change in a webhook of ours."""


class WebhookConfiguration(KubeObject, frozen=True):
    """The fields that both kinds of webhook configurations share."""

    webhooks: tuple[JSON, ...] = ()


class ValidatingConfiguration(WebhookConfiguration, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType(
        _GROUP, "v1", "validatingwebhookconfigurations", webhooks.VALIDATING, namespaced=False
    )


class MutatingConfiguration(WebhookConfiguration, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType(
        _GROUP, "v1", "mutatingwebhookconfigurations", webhooks.MUTATING, namespaced=False
    )


class EndpointSubset(ApiStruct, frozen=True):
    """The addresses of pods that are ready."""

    addresses: tuple[JSON, ...] = ()


class Endpoints(KubeObject, frozen=True):
    """The addresses behind a Service."""

    TYPE: ClassVar[ResourceType] = ResourceType("", "v1", "endpoints", "Endpoints")

    subsets: tuple[EndpointSubset, ...] = ()


async def register(api: Api, trusted: bytes) -> tuple[str, ...]:
    """Write our webhooks with the authority of their certificate into both configurations, where they differ.

    The first time, this waits until the webhooks' Service has a ready address. Return what is missing, as sentences.
    Raise ApiError if a request fails.
    """
    text = base64.b64encode(trusted).decode()
    wanted = webhooks.hooks(Values(namespace=api.namespace))
    missing: list[str] = []
    kinds: tuple[type[WebhookConfiguration], ...] = (ValidatingConfiguration, MutatingConfiguration)
    for kind in kinds:
        name = kind.TYPE.kind
        try:
            found = await api.get(kind, WEBHOOK)
        except NotFoundError:
            step = "kubectl apply -f deploy/kubernetes-machines/33-webhooks.yaml, or helm upgrade"
            missing.append(str(Message(f"there is no {name} {WEBHOOK}: the webhooks are not called", step)))
            continue
        merged = merge(found.webhooks, wanted[name], text)
        if merged == list(found.webhooks):
            continue
        if not found.webhooks and not await _service_is_ready(api):
            missing.append(f"{name} {WEBHOOK} waits until Service {WEBHOOK} has a ready address")
            continue
        version = {"op": "test", "path": "/metadata/resourceVersion", "value": found.metadata.resource_version}
        await api.patch(kind, WEBHOOK, [version, {"op": "add", "path": "/webhooks", "value": merged}], style="json")
        log.info("registered %s in %s %s", ", ".join(each["name"] for each in merged), name, WEBHOOK)
    return tuple(missing)


def merge(live: Sequence[JSON], ours: Sequence[JSON], authority: str) -> list[JSON]:
    """Return the webhooks that a configuration should hold.

    Our webhooks get the form of this version, except for fields that an administrator may set and for a URL. Webhooks
    of others stay as they are. Webhooks that only another version of Aliquot had are removed.
    """
    wanted = {hook["name"]: hook for hook in ours}
    merged = []
    for hook in live:
        name = str(hook.get("name", ""))
        if name in wanted:
            merged.append(_merge_hook(hook, wanted.pop(name), authority))
        elif not name.endswith(_OURS):
            merged.append(hook)
    return merged + [_merge_hook({}, hook, authority) for hook in wanted.values()]


def _merge_hook(live: JSON, hook: JSON, authority: str) -> JSON:
    admin_values = {key: live[key] for key in _ADMIN_FIELDS if key in live}
    live_client = live.get("clientConfig", {})
    client = live_client if "url" in live_client else hook["clientConfig"]
    return {**live, **hook, **admin_values, "clientConfig": {**client, "caBundle": authority}}


async def _service_is_ready(api: Api) -> bool:
    try:
        found = await api.get(Endpoints, WEBHOOK)
    except NotFoundError:
        return False
    return any(each.addresses for each in found.subsets)
