"""Patches: their kind, their decoding, and their result."""

from __future__ import annotations

from typing import Any

import msgspec

from support.standin import patches, strategic
from support.standin import schema as schemas
from support.standin.answers import Cause, RefusalError, bad_request, invalid, unsupported_media
from support.standin.call import Call

JSON = dict[str, Any]
APPLY = "application/apply-patch+yaml"
_JSON, _MERGE, _STRATEGIC = (f"application/{kind}-patch+json" for kind in ("json", "merge", "strategic-merge"))
_KNOWN = (_JSON, _MERGE, _STRATEGIC, APPLY, "application/apply-patch+cbor")


def media_of(call: Call) -> str:
    """Return the kind of patch.

    Raises:
        RefusalError: 415, a kind that the server lacks
    """
    media = call.content_type.partition(";")[0].strip()
    if media not in _KNOWN:
        raise RefusalError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    if media not in (_JSON, _MERGE, _STRATEGIC, APPLY) or (media == _STRATEGIC and call.kind.custom is not None):
        raise unsupported_media(", ".join(one for one in _KNOWN if one != _STRATEGIC or call.kind.custom is None))
    return media


def patched(call: Call, media: str, old: JSON) -> Any:
    """Return the result of the patch, not yet decoded as an object of its kind.

    Raises:
        RefusalError: 400 or 422, see ``patches`` and ``strategic``
    """
    try:
        body = msgspec.json.decode(call.body)
    except msgspec.DecodeError as error:
        raise patches.decode_refusal(error) from None
    if media == _JSON:
        return patches.json_patch(old, body)
    if not isinstance(body, dict):
        kind = "array" if isinstance(body, list) else "string"
        text = f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        raise bad_request(f"error decoding patch: {text}")
    return strategic.apply(old, body, schemas.root(call.kind)) if media == _STRATEGIC else patches.merge(old, body)


def unfit(refusal: RefusalError, patched: JSON) -> RefusalError:
    """Refuse a patch that creates an object of wrong types: the real server calls the patch invalid."""
    _, found, why = refusal.message.partition("json: cannot unmarshal")
    if not found:
        return refusal
    return invalid("", "", "", [Cause.invalid("patch", msgspec.json.encode(patched).decode(), found + why)])
