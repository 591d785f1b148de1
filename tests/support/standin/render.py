"""Answers in the form that the client requests: JSON, YAML, tables, metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from support.standin import events, tables
from support.standin.answers import RefusalError, not_acceptable
from support.standin.call import Call
from support.standin.frames import Frames
from support.standin.kinds import Kind

JSON = dict[str, Any]
_META = "meta.k8s.io"


class Rendered(msgspec.Struct):
    """An answer as it is sent: ``lines`` instead of ``body`` for a watch, ``session`` for a WebSocket."""

    code: int
    media: str
    body: bytes = b""
    lines: Iterable[JSON] | None = None
    headers: dict[str, str] = {}
    session: Callable[[Frames], None] | None = None


def plain(code: int, value: JSON) -> Rendered:
    return Rendered(code, "application/json", msgspec.json.encode(value))


def refused(refusal: RefusalError) -> Rendered:
    answer = plain(refusal.code, refusal.body())
    seconds = (refusal.details or {}).get("retryAfterSeconds")
    if seconds is not None:
        answer.headers["Retry-After"] = str(seconds)
    return answer


def wanted(accept: str) -> tuple[str, str]:
    """Return media type and ``as`` (Table, PartialObjectMetadata, ...) of the first form that can be served.

    Raises:
        RefusalError: 406
    """
    for one in accept.split(","):
        media, *parameters = [part.strip() for part in one.split(";")]
        found = dict(part.partition("=")[::2] for part in parameters)
        form = found.get("as", "")
        if form and (found.get("g") != _META or found.get("v") not in ("v1", "v1beta1")):
            continue
        if media in ("application/json", "*/*", "application/*", ""):
            return "application/json", form
        if media in ("application/yaml", "text/yaml"):
            return "application/yaml", form
    raise not_acceptable()


def answer(call: Call, code: int, value: JSON) -> Rendered:
    """Return an object, list or status in the requested form."""
    media, form = wanted(call.accept)
    value = shaped(call, value, form)
    headers = {"Warning": ", ".join(map(_warning, call.warnings))} if call.warnings else {}
    if media == "application/yaml":
        import yaml

        return Rendered(code, media, yaml.safe_dump(value, sort_keys=False).encode(), headers=headers)
    return Rendered(code, media, msgspec.json.encode(value), headers=headers)


def _warning(text: str) -> str:
    """Encode a warning by RFC 7234, 5.5, in UTF-8: ``http.server`` writes headers as Latin-1."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'.encode().decode("latin-1")


def shaped(call: Call, value: JSON, form: str) -> JSON:
    """Return a table or metadata if the client requests that, with list items as the server writes them."""
    kind = call.kind
    if value.get("kind") == "Status":
        return value
    is_list = "items" in value
    if form == "Table":
        objects = call.query.get("includeObject", "Metadata")
        rows = [versioned(kind, row) for row in value["items"]] if is_list else [versioned(kind, value)]
        meta = value["metadata"] if is_list else {"resourceVersion": value["metadata"].get("resourceVersion", "")}
        return tables.table(kind, rows, meta, objects=objects)
    if form.startswith("PartialObjectMetadata"):
        if not is_list:
            return tables.metadata_only(value)
        items = [tables.metadata_only(row) for row in value["items"]]
        head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        return {**head, "metadata": value["metadata"], "items": items}
    if is_list:
        if kind.custom is not None:
            value = {**value, "metadata": {"continue": "", **value["metadata"]}}
        return {**value, "items": [_item(kind, row) for row in value["items"]]}
    return versioned(kind, value)


def _item(kind: Kind, row: JSON) -> JSON:
    """Return an item of a list. Items of built-in lists do not repeat their kind."""
    if kind.custom is not None:
        return versioned(kind, row)
    row = versioned(kind, row)
    return {key: one for key, one in row.items() if key not in ("kind", "apiVersion")}


def versioned(kind: Kind, value: JSON) -> JSON:
    """Return the stored object in the requested version."""
    if kind.bucket == "events":
        return events.shown(kind, value)
    if value.get("kind") != kind.kind or value.get("apiVersion") == kind.api_version:
        return value
    return {**value, "apiVersion": kind.api_version}


def lines(call: Call, events: Iterator[JSON]) -> Iterator[JSON]:
    """Return a watch's events, with their objects in the requested form."""
    _, form = wanted(call.accept)
    first = True
    for event in events:
        value = event["object"]
        if value.get("kind") != "Status" and event["type"] != "BOOKMARK":
            value = shaped(call, value, form)
            if form == "Table" and not first:
                value = {**value, "columnDefinitions": None}
            first = False
        elif form == "Table" and event["type"] == "BOOKMARK":
            meta = {"resourceVersion": value["metadata"]["resourceVersion"]}
            value = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
            value.update(columnDefinitions=None, rows=[])
        yield {**event, "object": value}
