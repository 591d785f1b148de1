"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386), as the API takes them."""

from __future__ import annotations

from typing import Any

from support.standin.answers import RefusalError, bad_request, unprocessable
from support.standin.store import clone

JSON = dict[str, Any]


def merge(target: Any, patch: Any) -> Any:
    """Merge a patch into a value: objects are merged, null removes, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def json_patch(target: JSON, operations: Any) -> JSON:
    """Return the patched copy. Like the real server, replace adds a missing value, and remove ignores one.

    Raises:
        RefusalError: 422 when a test fails or a path leads nowhere, 400 for a text that is not a patch
    """
    if not isinstance(operations, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        )
    document: Any = clone(target)
    for operation in operations:
        document = _operate(document, operation)
    if not isinstance(document, dict):
        raise unprocessable()
    return document


def _operate(document: Any, operation: JSON) -> Any:
    verb, path = operation.get("op"), _pointer(operation.get("path", ""))
    if verb == "add":
        return _put(document, path, operation.get("value"), add=True)
    if verb == "replace":
        return _put(document, path, operation.get("value"), add=False)
    if verb == "remove":
        return _remove(document, path)
    if verb == "test":
        found = _observe(document, path, default=None)
        if found != operation.get("value"):
            raise unprocessable()
        return document
    if verb in ("move", "copy"):
        source = _pointer(operation.get("from", ""))
        value = _observe(document, source)
        return _put(_remove(document, source) if verb == "move" else document, path, value, add=True)
    raise unprocessable()


def _pointer(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


_NOTHING = object()


def _observe(document: Any, path: list[str], default: Any = _NOTHING) -> Any:
    for part in path:
        try:
            document = document[part] if isinstance(document, dict) else document[_index(part, document)]
        except (KeyError, IndexError, TypeError):
            if default is not _NOTHING:
                return default
            raise unprocessable() from None
    return document


def _index(part: str, inside: Any) -> int:
    if not isinstance(inside, list) or not part.lstrip("-").isdigit():
        raise unprocessable()
    return int(part)


def _put(document: Any, path: list[str], value: Any, *, add: bool) -> Any:
    if not path:
        return value
    parent, last = _observe(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list) and add:
        place = len(parent) if last == "-" else _index(last, parent)
        if not 0 <= place <= len(parent):
            raise unprocessable()
        parent.insert(place, value)
    elif isinstance(parent, list):
        parent[_index(last, parent)] = value
    else:
        raise unprocessable()
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise unprocessable()
    parent, last = _observe(document, path[:-1]), path[-1]
    try:
        if isinstance(parent, dict):
            del parent[last]
        else:
            del parent[_index(last, parent)]
    except KeyError:
        return document
    except IndexError:
        raise unprocessable() from None
    return document


def decode_refusal(error: Exception) -> RefusalError:
    """Refuse a patch that is not JSON."""
    text = "unexpected end of JSON input" if "truncated" in str(error) else str(error)
    return bad_request(f"error decoding patch: {text}")
