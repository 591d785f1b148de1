"""The own Node, watched once: each role is notified of its part."""

from __future__ import annotations

import logging

import msgspec
import pytest

from aliquot.kubernetes.client.errors import ApiError, ApiUnavailableError
from aliquot.kubernetes.client.objects import Node, ObjectMeta
from aliquot.kubernetes.client.watch import FullList, ObjectChanged, ObjectDeleted
from aliquot.kubernetes.node_agent.own_node import OwnNode


def node(version: int, **labels: str) -> Node:
    return Node(ObjectMeta(name="n1", uid="u1", resource_version=str(version), labels=labels))


class Roles:
    """A role that needs all labels and hears of failures itself, and one that needs one label."""

    def __init__(self) -> None:
        self.own = OwnNode("n1")
        self.heard: list[str] = []
        self.failures: list[ApiError | None] = []
        self.own.listen(lambda _: self.heard.append("all"), lambda found: found.metadata.labels, self.failures.append)
        self.own.listen(lambda _: self.heard.append("one"), lambda found: found.metadata.labels.get("one"))

    def news(self) -> list[str]:
        found, self.heard[:] = list(self.heard), []
        return found


def test_each_role_hears_of_its_part() -> None:
    roles = Roles()
    roles.own.apply(FullList((node(1),)))
    assert roles.news() == ["all", "one"]
    roles.own.apply(ObjectChanged(node(2)))
    assert roles.news() == [], "a heartbeat"
    roles.own.apply(ObjectChanged(node(3, other="x")))
    assert roles.news() == ["all"]
    roles.own.apply(ObjectChanged(node(4, other="x", one="y")))
    assert roles.news() == ["all", "one"]
    roles.own.apply(ObjectDeleted(node(5, other="x", one="y")))
    assert roles.news() == ["all", "one"]
    assert roles.own.node is None


def test_a_node_of_the_same_name_is_news() -> None:
    roles = Roles()
    roles.own.apply(FullList((node(1),)))
    roles.news()
    meta = msgspec.structs.replace(node(9).metadata, uid="u2")
    roles.own.apply(FullList((Node(meta),)))
    assert roles.news() == ["all", "one"]


def test_what_the_process_writes_is_no_news() -> None:
    roles = Roles()
    roles.own.apply(FullList((node(1),)))
    roles.news()
    written = node(2, one="z")
    roles.own.record_write(roles.own.node, written)
    roles.own.apply(ObjectChanged(written))
    assert roles.news() == []
    assert roles.own.node == written
    roles.own.apply(ObjectChanged(node(3)))
    assert roles.news() == ["all", "one"], "another client has undone it"


def test_a_failure_is_logged_once_by_the_role_that_hears_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    roles = Roles()
    roles.own.apply(FullList((node(1),)))
    roles.news()
    gone = ApiUnavailableError("the server is away")
    roles.own._report_to_all(gone)
    assert (roles.failures, roles.news()) == ([gone], ["one"])
    assert roles.own.unavailable == "the server is away"
    assert caplog.text == ""
    roles.own._report_to_all(None)
    assert (roles.failures, roles.news(), roles.own.unavailable) == ([gone, None], ["one"], "")
    alone = OwnNode("n1")
    alone.listen(lambda _: None, lambda found: found)
    alone._report_to_all(gone)
    assert "the server is away" in caplog.text
