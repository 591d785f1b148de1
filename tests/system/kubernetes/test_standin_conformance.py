"""The stand-in answers as a real kube-apiserver did: every recorded request again, with status and whole body compared.

``tools/record_apiserver.py`` makes the records. ``DEVIATIONS`` lists each difference of the stand-in and its reason.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from support.cluster import StandinCluster
from support.cluster_replay import Replay, normal
from support.standin.kinds import RECORDED

JSON = dict[str, Any]

_AT_ONCE = "definitions are served at once, so the answer shows them established"
_WORDING = "status and reason are the same; the sentence quotes Go types or a grammar that the stand-in does not have"
_PROSE = (".message", ".details.causes")
_OLD_ETCD = "the recorded server ran on an etcd too old for this feature; the stand-in does what a newer one does"

DEVIATIONS: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("access", "token"): ((".metadata.uid", ".metadata.managedFields"), "a TokenRequest is not stored"),
    ("admission", "policy that cannot be read"): (_PROSE, _WORDING),
    ("admission", "policy without rules"): (_PROSE, "one fault is enough to refuse it; expressions are not read then"),
    ("apply", "yaml"): (_PROSE, _WORDING),
    ("bodies", "a list"): (_PROSE, _WORDING),
    ("bodies", "another version"): (_PROSE, _WORDING),
    ("custom-resources", "define"): ((".status",), _AT_ONCE),
    ("custom-resources", "no strategic merge"): (_PROSE, "apply patches in CBOR are named though not read"),
    ("custom-resources", "status of the wrong type"): (_PROSE, "the sentence names the field by its whole path"),
    ("custom-resources", "undefine"): (("",), "the definition is gone at once; the real one waits for its finalizer"),
    ("lists", "pages: bad token"): (_PROSE, _WORDING),
    ("metadata", "role name"): ((".metadata.managedFields",), "an empty list does not change a missing list"),
    ("objects", "replace with another uid"): (_PROSE, "the storage key is not quoted"),
    ("small-kinds", "new event without time"): ((".message", ".details.group"), "the real one forgets the group"),
    ("watches", "initial events"): (("",), _OLD_ETCD),
}
"""Scenario and step map to the parts of the body (by their path) that may differ, and the reason. The status may never
differ.
"""


@cache
def recorded() -> dict[str, list[JSON]]:
    """Return the steps of every scenario."""
    files = sorted(RECORDED.glob("answers-*.json"))
    return {file.stem.removeprefix("answers-"): json.loads(file.read_text())["steps"] for file in files}


@pytest.mark.parametrize("scenario", sorted(recorded()))
def test_answers_as_recorded(scenario: str, tmp_path: Path) -> None:
    # One scenario, from an empty server. Steps depend on those before, so all are run and all differences reported.
    cluster = StandinCluster(tmp_path)
    replay = Replay(cluster)
    messages: list[str] = []
    try:
        for step in recorded()[scenario]:
            request, real = step["request"], step["answer"]
            ours = replay.run(request)
            real = {"status": real["status"], "body": normal(real["body"])}
            found = list(differences(real["body"], ours["body"]))
            if ours["status"] != real["status"]:
                messages.append(f"{request['name']}: status {ours['status']}, the real server said {real['status']}")
            allowed = DEVIATIONS.get((scenario, request["name"]), ((), ""))[0]
            if allowed and not found:
                messages.append(f"{request['name']}: no difference any more; take it out of DEVIATIONS")
            messages += [
                f"{request['name']}: {path}: {mine}, the real server said {theirs}"
                for path, theirs, mine in found
                if not any(path.startswith(prefix) for prefix in allowed)
            ]
    finally:
        cluster.close()
    assert not messages, "\n".join(messages)


def test_every_deviation_is_about_a_step() -> None:
    # The test above requires that there still is a difference.
    assert set(DEVIATIONS) <= {(name, step["request"]["name"]) for name, steps in recorded().items() for step in steps}


def differences(real: Any, ours: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Return where two JSON values differ: path, the real one's, ours."""
    if isinstance(real, dict) and isinstance(ours, dict):
        missing = "nothing"
        return [
            row
            for key in {**real, **ours}
            for row in (
                differences(real[key], ours[key], f"{path}.{key}")
                if key in real and key in ours
                else [(f"{path}.{key}", real.get(key, missing), ours.get(key, missing))]
            )
        ]
    if isinstance(real, list) and isinstance(ours, list) and len(real) == len(ours):
        return [row for n in range(len(real)) for row in differences(real[n], ours[n], f"{path}[{n}]")]
    return [] if real == ours and type(real) is type(ours) else [(path, real, ours)]


def test_records_tell_where_they_come_from() -> None:
    # Every file names the server that it was recorded from, all the same one.
    found = {json.loads(file.read_text())["provenance"]["server"] for file in RECORDED.glob("*.json")}
    assert len(found) == 1
    assert found.pop().startswith("kube-apiserver v1.")
