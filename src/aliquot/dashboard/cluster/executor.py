"""Execution of previews in a cluster: writes with the user's permissions, then waiting for the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from aliquot.dashboard.cluster import outcome_watch as outcome_watches
from aliquot.dashboard.cluster import user_client as writing
from aliquot.dashboard.cluster.cluster_cache import ClusterCache
from aliquot.dashboard.cluster.desired_state import NodeChange
from aliquot.dashboard.cluster.harvester_patches import ObjectPatch
from aliquot.dashboard.cluster.kubevirt_attach import DeviceLists
from aliquot.dashboard.cluster.outcome_watch import OutcomeTimeouts
from aliquot.dashboard.cluster.user_client import UserClients
from aliquot.dashboard.local.outcome_text import merge_outcomes
from aliquot.dashboard.view_models import ChangeOutcome, ChangePreview, Person
from aliquot.foundation.callbacks import Report
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.client.objects import ConfigMap, Node
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu import node_document as document
from aliquot.kubernetes.gpu.config_label import DATA_KEY, NamedConfigSource, config_map_source
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine

_KEEP_CONFIGS = 5
"""Earlier configs that are kept for a node. Setting the label restores one of them."""
_ATTEMPTS = 8
_PUBLISH_S = 15.0
BY_ANNOTATION = "aliquot.dev/asked-by"
"""On a node: the last user who changed it with the dashboard, and the config, as JSON."""


class ClusterChangeContext(NamedTuple):
    """The dependencies of a change: informers, clients of users, and timeouts."""

    cache: ClusterCache
    clients: UserClients
    timeouts: OutcomeTimeouts


async def execute(cluster: ClusterChangeContext, preview: ChangePreview, who: Person, report: Report) -> ChangeOutcome:
    """Execute a preview. Raises AliquotError only before the first write."""
    secret = preview.secret
    async with cluster.clients.of(who) as api:
        if isinstance(secret, DeviceLists):
            return await _vm(api, secret, who, report)
        assert isinstance(secret, tuple)
        if secret and isinstance(secret[0], ObjectPatch):
            return await _objects(cluster, api, secret, who, report)
        return await _nodes(cluster, api, secret, who, report)


# -- nodes


async def _nodes(
    cluster: ClusterChangeContext, api: Api, changes: Sequence[NodeChange], who: Person, report: Report
) -> ChangeOutcome:
    several = len(changes) > 1

    async def execute_one(each: NodeChange) -> tuple[str, ChangeOutcome]:
        def published(line: str) -> None:
            report(f"{each.node}: {line}" if several else line)

        try:
            written, previous = await _write_desired(cluster, api, each, who, published)
        except ApiError as error:
            return each.node, _refused(error, who)
        except _StalePreviewError as error:
            step = "review the current state and request the change again"
            return each.node, ChangeOutcome.refused(str(error), code="MOVED", next_step=step)
        done = await outcome_watches.node(cluster.cache.nodes, written, each.label, published, cluster.timeouts)
        stays = await _restore_policy(api, each, previous, who)
        await _wait_published(cluster, each, done)
        return each.node, _policy_stays(done, each, previous, stays) if stays else done

    return merge_outcomes(await asyncio.gather(*map(execute_one, changes)))


async def _wait_published(cluster: ClusterChangeContext, each: NodeChange, done: ChangeOutcome) -> None:
    """Wait until the agent published the result, so that a new preview shows the changed state."""
    if done.status not in ("done", "nothing"):
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(_PUBLISH_S):
            while True:
                published = cluster.cache.document(each.node, document.GPUS)
                if published is not None and published.label == each.label and not published.drift:
                    return
                await asyncio.sleep(outcome_watches.POLL_S)


class _StalePreviewError(Exception):
    """The state changed since the preview."""


async def _write_desired(
    cluster: ClusterChangeContext, api: Api, each: NodeChange, who: Person, report: Report
) -> tuple[Node, str]:
    """Write the requested config if the node has the same label and GPUs as in the preview.

    Return the written node and its previous policy for holders. The policy at the time of the preview may have been
    that of another change and must not be restored.

    Raises ApiError, _StalePreviewError.
    """
    await _check_unchanged(cluster, api, each)
    if each.text:
        await _publish(api, each)
        report(f"written: config {each.label} in ConfigMap {names.own_map(each.node)}")
    for attempt in range(_ATTEMPTS):
        node = await _check_unchanged(cluster, api, each)
        try:
            written = await api.patch(Node, each.node, _patch(each, who, node))
        except ConflictError:
            if attempt + 1 == _ATTEMPTS:
                raise
            continue  # a heartbeat or another client wrote: the next read shows which
        what = "requested again" if each.repair else "written"
        report(f"{what}: {names.CONFIG_LABEL}={each.label}")
        return written, node.metadata.annotations.get(names.HOLDERS_ANNOTATION, "")
    raise AssertionError("the last attempt raises")


def _patch(each: NodeChange, who: Person, node: Node) -> dict[str, Any]:
    """Build the patch of the node. Removing the status makes an agent without self-healing apply the config again."""
    requester = msgspec.json.encode({"by": who.name, "config": each.label}).decode()
    notes: dict[str, str | None] = {BY_ANNOTATION: requester}
    if each.repair:
        notes |= {names.STATUS_ANNOTATION: None, names.MESSAGE_ANNOTATION: None}
    if each.holders:
        notes[names.HOLDERS_ANNOTATION] = each.holders
    meta = {"resourceVersion": node.metadata.resource_version, "annotations": notes}
    return {"metadata": meta | {"labels": {names.CONFIG_LABEL: each.label}}}


async def _check_unchanged(cluster: ClusterChangeContext, api: Api, each: NodeChange) -> Node:
    """Return the node if it is unchanged since the preview. Raises ApiError, _StalePreviewError."""
    node = await api.get(Node, each.node)
    label = node.metadata.labels.get(names.CONFIG_LABEL, "")
    if label != each.previous_label:
        raise _StalePreviewError(
            f"the config of {each.node} has changed since, from {each.previous_label or 'none'} to {label or 'none'}"
        )
    published = cluster.cache.document(each.node, document.GPUS)
    if published is None or published.inventory.fingerprint != each.inventory.fingerprint:
        raise _StalePreviewError(f"the GPUs of {each.node} have changed since")
    return node


async def _publish(api: Api, each: NodeChange) -> None:
    """Write the node's own config and keep the last few configs, which the label may still name."""
    name = names.own_map(each.node)
    try:
        found = await api.get(ConfigMap, name)
    except NotFoundError:
        node = await api.get(Node, each.node)
        owner = {"apiVersion": "v1", "kind": "Node", "name": each.node, "uid": node.metadata.uid}
        meta = {"name": name, "labels": {"app.kubernetes.io/name": "aliquot"}, "ownerReferences": [owner]}
        await api.create(ConfigMap, {"metadata": meta, "data": {DATA_KEY: each.text}})
        return
    text = _merge_configs(found.data.get(DATA_KEY, ""), each)
    version = found.metadata.resource_version
    await api.patch(ConfigMap, name, {"metadata": {"resourceVersion": version}, "data": {DATA_KEY: text}})


def _merge_configs(previous: str, each: NodeChange) -> str:
    """Merge both files, with the newest config last."""
    head, _, _ = each.text.partition("configs:\n")
    entries = {_name(part): part for part in (*_parts(previous), *_parts(each.text))}
    newest = entries.pop(each.label)
    previous_config = entries.pop(each.previous_label, "")
    configs = [*list(entries.values())[-_KEEP_CONFIGS:], previous_config, newest]
    return f"{head}configs:\n{''.join(configs)}"


def _parts(text: str) -> list[str]:
    """Split a file that Aliquot wrote into the text of each config. Names are indented by two spaces."""
    parts: list[str] = []
    for line in text.partition("configs:\n")[2].splitlines(keepends=True):
        if line.startswith(f"  {names.OWN_PREFIX}"):
            parts.append(line)
        elif parts:
            parts[-1] += line
    return parts


def _name(part: str) -> str:
    return part.split(":", 1)[0].strip()


async def own_source(api: Api, node: str) -> NamedConfigSource:
    """Read the configs that were generated for one node only. Raises ApiError."""
    name = names.own_map(node)
    where = f"{api.namespace}/{name}"
    try:
        return config_map_source(where, (await api.get(ConfigMap, name)).data)
    except NotFoundError:
        return config_map_source(where, None)


async def _restore_policy(api: Api, each: NodeChange, previous: str, who: Person) -> str:
    """Restore the policy for holders after a change. Return why it could not be restored, "" on success.

    A change may take longer than a user's token is valid.
    """
    if each.holders in ("", previous):
        return ""
    try:
        node = await api.get(Node, each.node)
        if node.metadata.annotations.get(names.HOLDERS_ANNOTATION) == each.holders:
            await api.patch(
                Node, each.node, {"metadata": {"annotations": {names.HOLDERS_ANNOTATION: previous or None}}}
            )
    except NotFoundError:
        return ""  # the node was deleted
    except ApiError as error:
        return writing.why(error, who)
    return ""


def _policy_stays(done: ChangeOutcome, each: NodeChange, previous: str, why: str) -> ChangeOutcome:
    """Prepend a notice that the policy stays, because it applies to later changes of all users."""
    ending = f"={previous} --overwrite" if previous else "-"
    step = f"kubectl annotate node {each.node} {names.HOLDERS_ANNOTATION}{ending}"
    line = f"{each.node} still has {names.HOLDERS_ANNOTATION}={each.holders}, also for later changes ({why}): {step}"
    return msgspec.structs.replace(done, details=(line, *done.details), next_step=done.next_step or step)


# -- objects


async def _objects(
    cluster: ClusterChangeContext, api: Api, writes: Sequence[ObjectPatch], who: Person, report: Report
) -> ChangeOutcome:
    written: list[tuple[ObjectPatch, int]] = []
    for each in writes:
        body = {"metadata": {"resourceVersion": each.version}, "spec": each.spec}
        try:
            found = await api.patch(each.kind, each.name, body)
        except ApiError as error:
            if not written:
                return _refused(error, who)
            names_ = ", ".join(w.name for w, _ in written)
            text = f"{len(written)} of {len(writes)} objects were changed ({names_}), then: {writing.why(error, who)}"
            return ChangeOutcome("partial", text, error.details, error.code, error.next_step or "")
        report(f"written: {each.kind.TYPE.kind} {each.name}")
        written.append((each, found.metadata.generation))
    informers = {informer.kind: informer for informer in cluster.cache.virtualization_informers}
    ended = await asyncio.gather(
        *(outcome_watches.ready(informers[w.kind], w.name, number, report, cluster.timeouts) for w, number in written)
    )
    parts = [(each.name, done) for (each, _), done in zip(written, ended, strict=True)]
    if len(parts) == 1:
        return parts[0][1]
    bad = [done for _, done in parts if done.status != "done"]
    if not bad:
        return ChangeOutcome(
            "done", f"All {len(parts)} objects match the request.", tuple(done.sentence for _, done in parts)
        )
    details = tuple(done.sentence for _, done in parts)
    return ChangeOutcome(
        "partial", f"{len(parts) - len(bad)} of {len(parts)} objects match the request.", details, bad[0].code
    )


# -- VMs


async def _vm(api: Api, found: DeviceLists, who: Person, report: Report) -> ChangeOutcome:
    try:
        await api.patch(VirtualMachine, found.name, found.body(), namespace=found.namespace)
    except ApiError as error:
        return _refused(error, who)
    report(f"written: the devices of {found.namespace}/{found.name}")
    when = " It is running: stop and start it to apply the change." if found.running else ""
    return ChangeOutcome("done", f"The devices of {found.name} are saved.{when}")


def _refused(error: ApiError, who: Person) -> ChangeOutcome:
    if writing.is_conflict(error):
        step = "review the current state and request the change again"
        return ChangeOutcome.refused("the object changed since the preview.", (error.brief,), "MOVED", step)
    return ChangeOutcome.refused(writing.why(error, who), error.details, error.code, error.next_step)
