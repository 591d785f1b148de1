"""Carrying out what was previewed: the writes, in the person's name, then following until it is known how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from aliquot.dashboard.cluster import outcome_watch as following
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
"""Configs that are kept for a node beside the newest, so that going back to one is a label away."""
_ATTEMPTS = 8
_PUBLISH_S = 15.0
BY_ANNOTATION = "aliquot.dev/asked-by"
"""On a node: who asked last by the page, and for which config, as JSON."""


class ClusterChangeContext(NamedTuple):
    """What a change works with: the watched objects, the clients of persons, and how long an outcome may take."""

    cache: ClusterCache
    clients: UserClients
    timeouts: OutcomeTimeouts


async def execute(cluster: ClusterChangeContext, preview: ChangePreview, who: Person, report: Report) -> ChangeOutcome:
    """Raises AliquotError where nothing was written yet."""
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
            step = "look at it again, and ask anew"
            return each.node, ChangeOutcome("refused", f"Nothing was changed: {error}", code="MOVED", next_step=step)
        done = await following.node(cluster.cache.nodes, written, each.label, published, cluster.timeouts)
        stays = await _restore_policy(api, each, previous, who)
        await _wait_published(cluster, each, done)
        return each.node, _policy_stays(done, each, previous, stays) if stays else done

    return merge_outcomes(await asyncio.gather(*map(execute_one, changes)))


async def _wait_published(cluster: ClusterChangeContext, each: NodeChange, done: ChangeOutcome) -> None:
    """Until the agent has published what it did: who asks for the same again must not be shown it as undone."""
    if done.status not in ("done", "nothing"):
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(_PUBLISH_S):
            while True:
                published = cluster.cache.document(each.node, document.GPUS)
                if published is not None and published.label == each.label and not published.drift:
                    return
                await asyncio.sleep(following.POLL_S)


class _StalePreviewError(Exception):
    """What was previewed is no longer what is."""


async def _write_desired(
    cluster: ClusterChangeContext, api: Api, each: NodeChange, who: Person, report: Report
) -> tuple[Node, str]:
    """Writes the wish, tied to the node as it was previewed: same label, same GPUs. The second value is the policy for
    holders that stood there. What stood there at the preview may have been another change's, and must not come back.

    Raises ApiError, _StalePreviewError.
    """
    await _check_unchanged(cluster, api, each)
    if each.text:
        await _publish(api, each)
        report(f"written: the config {each.label} in ConfigMap {names.own_map(each.node)}")
    for attempt in range(_ATTEMPTS):
        node = await _check_unchanged(cluster, api, each)
        try:
            written = await api.patch(Node, each.node, _patch(each, who, node))
        except ConflictError:
            if attempt + 1 == _ATTEMPTS:
                raise
            continue  # a heartbeat, or somebody else: the next look says which
        what = "asked again" if each.repair else "written"
        report(f"{what}: {names.CONFIG_LABEL}={each.label}")
        return written, node.metadata.annotations.get(names.HOLDERS_ANNOTATION, "")
    raise AssertionError("the last attempt raises")


def _patch(each: NodeChange, who: Person, node: Node) -> dict[str, Any]:
    """A status that is taken away is made anew: an agent that does not heal by itself carries its wish out again."""
    requester = msgspec.json.encode({"by": who.name, "config": each.label}).decode()
    notes: dict[str, str | None] = {BY_ANNOTATION: requester}
    if each.repair:
        notes |= {names.STATUS_ANNOTATION: None, names.MESSAGE_ANNOTATION: None}
    if each.holders:
        notes[names.HOLDERS_ANNOTATION] = each.holders
    meta = {"resourceVersion": node.metadata.resource_version, "annotations": notes}
    return {"metadata": meta | {"labels": {names.CONFIG_LABEL: each.label}}}


async def _check_unchanged(cluster: ClusterChangeContext, api: Api, each: NodeChange) -> Node:
    """The node, if it is as it was previewed."""
    node = await api.get(Node, each.node)
    label = node.metadata.labels.get(names.CONFIG_LABEL, "")
    if label != each.previous_label:
        raise _StalePreviewError(
            f"somebody has changed the wish of {each.node} since, from {each.previous_label or 'none'} to {label}"
        )
    published = cluster.cache.document(each.node, document.GPUS)
    if published is None or published.inventory.fingerprint != each.inventory.fingerprint:
        raise _StalePreviewError(f"the GPUs of {each.node} have changed since")
    return node


async def _publish(api: Api, each: NodeChange) -> None:
    """The node's own config, beside the last few: those that the label may still name."""
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
    """Both files as one, the newest config last."""
    head, _, _ = each.text.partition("configs:\n")
    entries = {_name(part): part for part in (*_parts(previous), *_parts(each.text))}
    newest = entries.pop(each.label)
    previous_config = entries.pop(each.previous_label, "")
    configs = [*list(entries.values())[-_KEEP_CONFIGS:], previous_config, newest]
    return f"{head}configs:\n{''.join(configs)}"


def _parts(text: str) -> list[str]:
    """The text of each config of a file that we wrote: its name is indented by two."""
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
    """The configs that were made for a node alone. Raises ApiError."""
    name = names.own_map(node)
    where = f"{api.namespace}/{name}"
    try:
        return config_map_source(where, (await api.get(ConfigMap, name)).data)
    except NotFoundError:
        return config_map_source(where, None)


async def _restore_policy(api: Api, each: NodeChange, previous: str, who: Person) -> str:
    """The policy for holders was for this change alone. Why it stays, "" if it does not: a change may take longer than
    a person's token lasts.
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
        return ""  # it went with the node
    except ApiError as error:
        return writing.why(error, who)
    return ""


def _policy_stays(done: ChangeOutcome, each: NodeChange, previous: str, why: str) -> ChangeOutcome:
    """Told first: a policy that stays is that of later changes, whoever asks for them."""
    ending = f"={previous} --overwrite" if previous else "-"
    step = f"kubectl annotate node {each.node} {names.HOLDERS_ANNOTATION}{ending}"
    line = f"{each.node} still has {names.HOLDERS_ANNOTATION}={each.holders}, for later changes, too ({why}): {step}"
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
        *(following.ready(informers[w.kind], w.name, number, report, cluster.timeouts) for w, number in written)
    )
    parts = [(each.name, done) for (each, _), done in zip(written, ended, strict=True)]
    if len(parts) == 1:
        return parts[0][1]
    bad = [done for _, done in parts if done.status != "done"]
    if not bad:
        return ChangeOutcome("done", f"All {len(parts)} are as wished.", tuple(done.sentence for _, done in parts))
    details = tuple(done.sentence for _, done in parts)
    return ChangeOutcome("partial", f"{len(parts) - len(bad)} of {len(parts)} are as wished.", details, bad[0].code)


# -- machines


async def _vm(api: Api, found: DeviceLists, who: Person, report: Report) -> ChangeOutcome:
    try:
        await api.patch(VirtualMachine, found.name, found.body(), namespace=found.namespace)
    except ApiError as error:
        return _refused(error, who)
    report(f"written: the devices of {found.namespace}/{found.name}")
    running = any("takes effect" in warning for warning in found.warnings)
    when = " It runs: stop and start it to make that so." if running else ""
    return ChangeOutcome("done", f"{found.name} is saved with its devices.{when}")


def _refused(error: ApiError, who: Person) -> ChangeOutcome:
    if writing.is_conflict(error):
        text = "Nothing was changed: somebody else has changed it since you looked."
        return ChangeOutcome("refused", text, (error.brief,), "MOVED", "look at it again, and ask anew")
    step = error.next_step or ""
    return ChangeOutcome("refused", f"Nothing was changed: {writing.why(error, who)}", error.details, error.code, step)
