"""Label and field selectors of lists and watches."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from support.standin.answers import bad_request

JSON = dict[str, Any]
Matches = Callable[[JSON], bool]
"""Reports whether an object is selected."""

_SET = re.compile(r"^(\S+)\s+(in|notin)\s*\(([^()]*)\)$")
_EQUAL = re.compile(r"^([^\s=!<>]+)\s*(==|=|!=)\s*([^\s()]*)$")
_NUMBER = re.compile(r"^([^\s=!<>]+)\s*(>|<)\s*(-?\d+)$")
_KEY = re.compile(r"^!?\s*([A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?)$")


def everything(_: JSON) -> bool:
    return True


def labels(text: str) -> Matches:
    """Return a matcher of ``a=b,c in (d,e),!f``.

    Raises:
        RefusalError: 400, the text is not a selector
    """
    tests = [_requirement(part.strip()) for part in _split(text)] if text.strip() else []
    return lambda value: all(test(value["metadata"].get("labels") or {}) for test in tests)


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    return re.split(r",(?![^(]*\))", text)


def _requirement(part: str) -> Callable[[dict[str, str]], bool]:
    if found := _SET.match(part):
        key, values = found[1], {one.strip() for one in found[3].split(",")}
        if found[2] == "in":
            return lambda have: have.get(key) in values and key in have
        return lambda have: have.get(key) not in values
    if found := _NUMBER.match(part):
        key, limit, more = found[1], int(found[3]), found[2] == ">"
        return lambda have: _compares(have.get(key), limit, more)
    if found := _EQUAL.match(part):
        key, wanted = found[1], found[3]
        if found[2] == "!=":
            return lambda have: have.get(key) != wanted
        return lambda have: have.get(key) == wanted
    if re.match(r"^[^\s=!<>]+\s*[<>]", part):
        value = re.split("[<>]", part)[1]
        why = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise bad_request(f'unable to parse requirement: values[0]: Invalid value: "{value}": {why}')
    if found := _KEY.match(part):
        key = found[1]
        return (lambda have: key not in have) if part.startswith("!") else (lambda have: key in have)
    words = part.split()
    if len(words) > 2 and words[1] in ("in", "notin"):
        raise bad_request(f"unable to parse requirement: found '{words[2]}' expected: '('")
    if len(words) == 2 and "=" in words[0]:
        raise bad_request(f"found '{words[1]}', expected: ',' or 'end of string'")
    if found := re.search(r"=\s*([()])", part):
        raise bad_request(f"unable to parse requirement: found '{found[1]}', expected: identifier")
    if len(words) > 1:
        raise bad_request(f"unable to parse requirement: found '{words[1]}', expected: in, notin, =, ==, !=, gt, lt")
    raise bad_request(f"unable to parse requirement: found '{part}', expected: identifier")


def _compares(have: str | None, limit: int, more: bool) -> bool:
    if have is None or not re.fullmatch(r"-?\d+", have):
        return False
    return int(have) > limit if more else int(have) < limit


def of_object(selector: JSON | None) -> Callable[[dict[str, str]], bool]:
    """Return a test of labels from a ``LabelSelector``. None selects nothing, an empty one everything."""
    if selector is None:
        return lambda have: False
    tests: list[Callable[[dict[str, str]], bool]] = [
        lambda have, k=key, v=value: have.get(k) == v  # type: ignore[misc]
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for row in selector.get("matchExpressions") or []:
        tests.append(_expression(row["key"], row["operator"], set(row.get("values") or ())))
    return lambda have: all(test(have) for test in tests)


def _expression(key: str, operator: str, values: set[str]) -> Callable[[dict[str, str]], bool]:
    tests: dict[str, Callable[[dict[str, str]], bool]] = {
        "In": lambda have: key in have and have[key] in values,
        "NotIn": lambda have: have.get(key) not in values,
        "Exists": lambda have: key in have,
        "DoesNotExist": lambda have: key not in have,
    }
    return tests[operator]


_INVOLVED = {
    f"involvedObject.{name}": ("involvedObject", name)
    for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
}
_FIELDS: dict[str, dict[str, tuple[str, ...]]] = {
    "nodes.": {"spec.unschedulable": ("spec", "unschedulable")},
    "pods.": {
        "spec.nodeName": ("spec", "nodeName"),
        "spec.restartPolicy": ("spec", "restartPolicy"),
        "spec.schedulerName": ("spec", "schedulerName"),
        "spec.serviceAccountName": ("spec", "serviceAccountName"),
        "spec.hostNetwork": ("spec", "hostNetwork"),
        "status.phase": ("status", "phase"),
        "status.podIP": ("status", "podIP"),
        "status.nominatedNodeName": ("status", "nominatedNodeName"),
    },
    "namespaces.": {"name": ("metadata", "name"), "status.phase": ("status", "phase")},
    "secrets.": {"type": ("type",)},
    "jobs.batch": {"status.successful": ("status", "succeeded")},
    "resourceslices.resource.k8s.io": {"spec.nodeName": ("spec", "nodeName"), "spec.driver": ("spec", "driver")},
    "events": {
        **_INVOLVED,
        "reason": ("reason",),
        "reportingComponent": ("reportingComponent",),
        "source": ("source", "component"),
        "type": ("type",),
    },
}
_WHEN_MISSING = {"spec.unschedulable": "false", "spec.hostNetwork": "false"}
_REGARDING = {
    **{key.replace("involvedObject", "regarding"): path for key, path in _INVOLVED.items()},
    "reason": ("reason",),
    "reportingController": ("reportingComponent",),
    "type": ("type",),
}


def fields(
    text: str, bucket: str, *, selectable: tuple[str, ...] = (), regarding: bool = False, custom: bool = False
) -> Matches:
    """Return a matcher of ``metadata.name=a,spec.nodeName!=b``, with only the fields that the real server knows for
    this kind.

    Args:
        selectable: a custom resource's own fields, as ``.spec.nodeName``
        regarding: the names of events.k8s.io instead of those of core events

    Raises:
        RefusalError: 400, an unknown field or no selector at all
    """
    known: dict[str, tuple[str, ...]] = {"metadata.name": ("metadata", "name")}
    known["metadata.namespace"] = ("metadata", "namespace")
    known.update(_REGARDING if regarding else _FIELDS.get(bucket, {}))
    known.update({path.lstrip("."): tuple(path.lstrip(".").split(".")) for path in selectable})
    open_ended = bucket in _FIELDS or custom
    tests = [_field(part, known, open_ended=open_ended) for part in text.split(",") if part]
    return lambda value: all(test(value) for test in tests)


def _field(part: str, known: dict[str, tuple[str, ...]], *, open_ended: bool) -> Matches:
    found = re.match(r"^([^=!]+)(==|=|!=)(.*)$", part)
    if found is None:
        raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
    name, operator, wanted = found.groups()
    if name not in known:
        if open_ended:
            raise bad_request(f"field label not supported: {name}")
        names = ", ".join(f'"{one}"' for one in known)
        raise bad_request(f'"{name}" is not a known field selector: only {names}')
    path = known[name]
    return lambda value: ((_text(value, path) or _WHEN_MISSING.get(name, "")) == wanted) is (operator != "!=")


def _text(value: Any, path: tuple[str, ...]) -> str:
    for name in path:
        value = (value or {}).get(name)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
