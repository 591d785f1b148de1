"""Violations of CDI's own rules, one at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from aliquot.cdi import rules

GOOD: dict[str, Any] = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": "0:1", "containerEdits": {"deviceNodes": [{"path": "/dev/a", "type": "c", "permissions": "rw"}]}},
        {"name": "x", "containerEdits": {"env": ["A=b"]}},
    ],
    "containerEdits": {
        "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}],
        "hooks": [{"hookName": "createContainer", "path": "/bin/true"}],
    },
}


def set_in(*path: Any) -> Callable[[dict[str, Any]], None]:
    *way, last, value = path

    def change(document: dict[str, Any]) -> None:
        here: Any = document
        for step in way:
            here = here[step]
        here[last] = value

    return change


def test_a_good_document_has_no_fault() -> None:
    assert rules.document_errors(GOOD) == ()


@pytest.mark.parametrize(
    ("change", "output"),
    [
        (set_in("cdiVersion", "0.4.0"), "too low: its fields need 0.5.0"),
        (set_in("cdiVersion", "9.0.0"), "not a version"),
        (set_in("kind", "nvidia.com"), "not vendor/class"),
        (set_in("kind", "9vidia.com/gpu"), "not a CDI vendor"),
        (set_in("kind", "nvidia.com/gpu-"), "not a CDI class"),
        (set_in("devices", []), "no device"),
        (set_in("devices", 1, "name", "0:1"), "two devices are named 0:1"),
        (set_in("devices", 1, "name", "1g.10gb+me"), "not a name that CDI allows"),
        (set_in("devices", 1, "name", "a:"), "not a name that CDI allows"),
        (set_in("devices", 1, "containerEdits", {}), "containerEdits are empty"),
        (set_in("devices", 1, "note", "x"), "unknown field note"),
        (set_in("devices", 1, "containerEdits", "env", ["A"]), "'A' is not NAME=VALUE"),
        (set_in("devices", 0, "containerEdits", "deviceNodes", 0, "type", "z"), "has the type 'z'"),
        (set_in("devices", 0, "containerEdits", "deviceNodes", 0, "permissions", "rx"), "has the permissions 'rx'"),
        (set_in("devices", 0, "containerEdits", "deviceNodes", 0, "major", "195"), "major has the type str"),
        (set_in("containerEdits", "mounts", 0, "hostPath", ""), "hostPath is missing"),
        (set_in("containerEdits", "mounts", 0, "readonly", True), "unknown field readonly"),
        (set_in("containerEdits", "hooks", 0, "hookName", "later"), "unknown hook 'later'"),
    ],
)
def test_each_rule_is_watched(change: Callable[[dict[str, Any]], None], output: str) -> None:
    broken = copy.deepcopy(GOOD)
    change(broken)
    assert any(output in fault for fault in rules.document_errors(broken)), rules.document_errors(broken)
