"""Carrying out what was previewed: the writes, in the person's name, then following until it is known how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from aliquot.dashboard.cluster import outcome_watch as following
from aliquot.dashboard.cluster import user_client as writing
from aliquot.dashboard.cluster.desired_state import Way
from aliquot.dashboard.cluster.harvester_patches import Write
from aliquot.dashboard.cluster.kubevirt_attach import Lists
from aliquot.dashboard.local.outcome_text import together
from aliquot.dashboard.ports import Tell
from aliquot.dashboard.view_models import Done, Person, Preview
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.client.objects import ConfigMap, Node
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu import node_document as document
from aliquot.kubernetes.gpu.config_label import DATA_KEY, Source, data_of
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine

if TYPE_CHECKING:
    from aliquot.dashboard.cluster.source import Cluster

_KEPT = 5
"""Configs that are kept for a node beside the newest, so that going back to one is a label away."""
_ATTEMPTS = 8
_SHOWN_S = 15.0
BY_ANNOTATION = "aliquot.dev/asked-by"
"""On a node: who asked last by the page, and for which config, as JSON."""


async def carry_out(source: Cluster, preview: Preview, who: Person, tell: Tell) -> Done:
    """Raises AliquotError where nothing was written yet."""
    secret = preview.secret
    async with source.pen.of(who) as api:
        if isinstance(secret, Lists):
            return await _machine(api, secret, who, tell)
        assert isinstance(secret, tuple)
        if secret and isinstance(secret[0], Write):
            return await _objects(source, api, secret, who, tell)
        return await _nodes(source, api, secret, who, tell)


# -- nodes


async def _nodes(source: Cluster, api: Api, ways: Sequence[Way], who: Person, tell: Tell) -> Done:
    several = len(ways) > 1

    async def one(each: Way) -> tuple[str, Done]:
        def told(line: str) -> None:
            tell(f"{each.node}: {line}" if several else line)

        try:
            written, former = await _wish(source, api, each, who, told)
        except ApiError as error:
            return each.node, _refused(error, who)
        except _Moved as error:
            step = "look at it again, and ask anew"
            return each.node, Done("refused", f"Nothing was changed: {error}", code="MOVED", next_step=step)
        done = await following.node(source.view.nodes, written, each.label, told, source.patience)
        stays = await _give_back(api, each, former, who)
        await _shown(source, each, done)
        return each.node, _kept(done, each, former, stays) if stays else done

    return together(await asyncio.gather(*map(one, ways)))


async def _shown(source: Cluster, each: Way, done: Done) -> None:
    """Until the agent has published what it did: who asks for the same again must not be shown it as undone."""
    if done.status not in ("done", "nothing"):
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(_SHOWN_S):
            while True:
                told = source.view.document(each.node, document.GPUS)
                if told is not None and told.label == each.label and not told.drift:
                    return
                await asyncio.sleep(following.POLL_S)


class _Moved(Exception):
    """What was previewed is no longer what is."""


async def _wish(source: Cluster, api: Api, each: Way, who: Person, tell: Tell) -> tuple[Node, str]:
    """Writes the wish, tied to the node as it was previewed: same label, same GPUs. The second value is the policy for
    holders that stood there. What stood there at the preview may have been another change's, and must not come back.

    Raises ApiError, _Moved.
    """
    await _unmoved(source, api, each)
    if each.text:
        await _publish(api, each)
        tell(f"written: the config {each.label} in ConfigMap {names.own_map(each.node)}")
    for attempt in range(_ATTEMPTS):
        node = await _unmoved(source, api, each)
        try:
            written = await api.patch(Node, each.node, _patch(each, who, node))
        except ConflictError:
            if attempt + 1 == _ATTEMPTS:
                raise
            continue  # a heartbeat, or somebody else: the next look says which
        what = "asked again" if each.repair else "written"
        tell(f"{what}: {names.CONFIG_LABEL}={each.label}")
        return written, node.metadata.annotations.get(names.HOLDERS_ANNOTATION, "")
    raise AssertionError("the last attempt raises")


def _patch(each: Way, who: Person, node: Node) -> dict[str, Any]:
    """A status that is taken away is made anew: an agent that does not heal by itself carries its wish out again."""
    asked = msgspec.json.encode({"by": who.name, "config": each.label}).decode()
    notes: dict[str, str | None] = {BY_ANNOTATION: asked}
    if each.repair:
        notes |= {names.STATUS_ANNOTATION: None, names.MESSAGE_ANNOTATION: None}
    if each.holders:
        notes[names.HOLDERS_ANNOTATION] = each.holders
    meta = {"resourceVersion": node.metadata.resource_version, "annotations": notes}
    return {"metadata": meta | {"labels": {names.CONFIG_LABEL: each.label}}}


async def _unmoved(source: Cluster, api: Api, each: Way) -> Node:
    """The node, if it is as it was previewed."""
    node = await api.get(Node, each.node)
    label = node.metadata.labels.get(names.CONFIG_LABEL, "")
    if label != each.was:
        raise _Moved(f"somebody has changed the wish of {each.node} since, from {each.was or 'none'} to {label}")
    told = source.view.document(each.node, document.GPUS)
    if told is None or told.inventory.fingerprint != each.inventory.fingerprint:
        raise _Moved(f"the GPUs of {each.node} have changed since")
    return node


async def _publish(api: Api, each: Way) -> None:
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
    text = _joined(found.data.get(DATA_KEY, ""), each)
    version = found.metadata.resource_version
    await api.patch(ConfigMap, name, {"metadata": {"resourceVersion": version}, "data": {DATA_KEY: text}})


def _joined(former: str, each: Way) -> str:
    """Both files as one, the newest config last."""
    head, _, _ = each.text.partition("configs:\n")
    entries = {_name(part): part for part in (*_parts(former), *_parts(each.text))}
    newest = entries.pop(each.label)
    was = entries.pop(each.was, "")
    kept = [*list(entries.values())[-_KEPT:], was, newest]
    return f"{head}configs:\n{''.join(kept)}"


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


async def own_source(api: Api, node: str) -> Source:
    """The configs that were made for a node alone. Raises ApiError."""
    name = names.own_map(node)
    where = f"{api.namespace}/{name}"
    try:
        return data_of(where, (await api.get(ConfigMap, name)).data)
    except NotFoundError:
        return data_of(where, None)


async def _give_back(api: Api, each: Way, former: str, who: Person) -> str:
    """The policy for holders was for this change alone. Why it stays, "" if it does not: a change may take longer than
    a person's token lasts.
    """
    if each.holders in ("", former):
        return ""
    try:
        node = await api.get(Node, each.node)
        if node.metadata.annotations.get(names.HOLDERS_ANNOTATION) == each.holders:
            await api.patch(Node, each.node, {"metadata": {"annotations": {names.HOLDERS_ANNOTATION: former or None}}})
    except NotFoundError:
        return ""  # it went with the node
    except ApiError as error:
        return writing.why(error, who)
    return ""


def _kept(done: Done, each: Way, former: str, why: str) -> Done:
    """Told first: a policy that stays is that of later changes, whoever asks for them."""
    ending = f"={former} --overwrite" if former else "-"
    step = f"kubectl annotate node {each.node} {names.HOLDERS_ANNOTATION}{ending}"
    line = f"{each.node} still has {names.HOLDERS_ANNOTATION}={each.holders}, for later changes, too ({why}): {step}"
    return msgspec.structs.replace(done, details=(line, *done.details), next_step=done.next_step or step)


# -- objects


async def _objects(source: Cluster, api: Api, writes: Sequence[Write], who: Person, tell: Tell) -> Done:
    written: list[tuple[Write, int]] = []
    for each in writes:
        body = {"metadata": {"resourceVersion": each.version}, "spec": each.spec}
        try:
            found = await api.patch(each.kind, each.name, body)
        except ApiError as error:
            if not written:
                return _refused(error, who)
            names_ = ", ".join(w.name for w, _ in written)
            text = f"{len(written)} of {len(writes)} objects were changed ({names_}), then: {writing.why(error, who)}"
            return Done("partial", text, error.details, error.code, error.next_step or "")
        tell(f"written: {each.kind.TYPE.kind} {each.name}")
        written.append((each, found.metadata.generation))
    shelves = {shelf.kind: shelf for shelf in source.view.virtual_shelves}
    ended = await asyncio.gather(
        *(following.ready(shelves[w.kind], w.name, number, tell, source.patience) for w, number in written)
    )
    parts = [(each.name, done) for (each, _), done in zip(written, ended, strict=True)]
    if len(parts) == 1:
        return parts[0][1]
    bad = [done for _, done in parts if done.status != "done"]
    if not bad:
        return Done("done", f"All {len(parts)} are as wished.", tuple(done.sentence for _, done in parts))
    details = tuple(done.sentence for _, done in parts)
    return Done("partial", f"{len(parts) - len(bad)} of {len(parts)} are as wished.", details, bad[0].code)


# -- machines


async def _machine(api: Api, found: Lists, who: Person, tell: Tell) -> Done:
    try:
        await api.patch(VirtualMachine, found.name, found.body(), namespace=found.namespace)
    except ApiError as error:
        return _refused(error, who)
    tell(f"written: the devices of {found.namespace}/{found.name}")
    running = any("takes effect" in warning for warning in found.warnings)
    when = " It runs: stop and start it to make that so." if running else ""
    return Done("done", f"{found.name} is saved with its devices.{when}")


def _refused(error: ApiError, who: Person) -> Done:
    if writing.moved(error):
        text = "Nothing was changed: somebody else has changed it since you looked."
        return Done("refused", text, (error.brief,), "MOVED", "look at it again, and ask anew")
    step = error.next_step or ""
    return Done("refused", f"Nothing was changed: {writing.why(error, who)}", error.details, error.code, step)
