"""Lists in pages: ``limit`` and ``continue``."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from support.standin.answers import RefusalError, bad_request

JSON = dict[str, Any]


def page(rows: list[JSON], query: dict[str, str], revision: int) -> tuple[list[JSON], JSON]:
    """Return the requested rows and the list's metadata.

    Raises:
        RefusalError: 400, a bad limit or token; 504, a version of the future
    """
    asked = _number(query, "resourceVersion")
    if asked > revision:
        raise too_large(asked, revision)
    limit, start, at = _number(query, "limit"), ("", ""), revision
    if query.get("continue"):
        at, start = _decoded(query["continue"])
        rows = [row for row in rows if _place(row) > start]
    meta: JSON = {"resourceVersion": str(at)}
    if not limit or len(rows) <= limit:
        return rows, meta
    kept = rows[:limit]
    meta["continue"] = _encoded(at, _place(kept[-1]))
    if not (query.get("labelSelector") or query.get("fieldSelector")):
        meta["remainingItemCount"] = len(rows) - limit
    return kept, meta


def _number(query: dict[str, str], name: str) -> int:
    text = query.get(name) or "0"
    if not text.isdigit():
        raise bad_request(f"invalid resource version: {name}: {no_number(text)}")
    return int(text)


def no_number(text: str) -> str:
    return f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'


def too_large(asked: int, revision: int) -> RefusalError:
    text = f"Timeout: Too large resource version: {asked}, current: {revision}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return RefusalError(504, "Timeout", text, {"causes": [cause], "retryAfterSeconds": 1})


def _place(row: JSON) -> tuple[str, str]:
    return (row["metadata"].get("namespace", ""), row["metadata"]["name"])


def _encoded(revision: int, place: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([revision, *place])).decode()


def _decoded(token: str) -> tuple[int, tuple[str, str]]:
    try:
        revision, namespace, name = msgspec.json.decode(base64.urlsafe_b64decode(token))
    except ValueError:
        raise bad_request("invalid continue token: continue key is not valid: it cannot be read") from None
    return revision, (namespace, name)
