"""Parse a URL to a request."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote

import msgspec

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get", "HEAD": "get"}
_OF_NAMESPACE = ("status", "finalize")


class Route(msgspec.Struct, frozen=True):
    """A resource path, parsed but not yet looked up."""

    verb: str
    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def query(text: str) -> dict[str, str]:
    """Return the last value of each parameter."""
    return dict(parse_qsl(text, keep_blank_values=True))


def words(text: str) -> tuple[str, ...]:
    """Return every value of the parameter ``command``."""
    return tuple(value for key, value in parse_qsl(text, keep_blank_values=True) if key == "command")


def route(method: str, path: str, parameters: dict[str, str]) -> Route | None:
    """Return the route, or None if the path is not that of a resource."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    watched = rest[0] == "watch" and len(rest) > 1
    if watched:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_NAMESPACE:
        namespace, rest = rest[1], rest[2:]
    plural, name = rest[0], rest[1] if len(rest) > 1 else ""
    if plural == "namespaces" and not group:
        namespace = name
    subresource = "/".join(rest[2:])
    verb = "watch" if watched else _verb(method, name, parameters)
    return Route(verb, group, version, plural, namespace, name, subresource)


def _verb(method: str, name: str, parameters: dict[str, str]) -> str:
    verb = _VERBS.get(method, method.lower())
    watching = parameters.get("watch") in ("true", "1")
    if verb == "get" and (watching or not name):
        return "watch" if watching else "list"
    return "deletecollection" if verb == "delete" and not name else verb
