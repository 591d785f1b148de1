"""Log lines with names that users choose: of pods, of objects, of processes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest

from aliquot.foundation import logfmt
from aliquot.foundation.logfmt import agent_log

LINE = re.compile(r'time="[0-9-]+T[0-9:]+Z" level=warning msg="((?:[^"\\]|\\.)*)"\n')


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    handlers, propagate, level = list(agent_log.handlers), agent_log.propagate, agent_log.level
    yield
    agent_log.handlers[:], agent_log.propagate = handlers, propagate
    agent_log.setLevel(level)


def logged(capsys: pytest.CaptureFixture[str], text: str) -> str:
    logfmt.start(agent_log, debug=False)
    agent_log.warning("pod %s", text)
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('a"b\\c', 'a\\"b\\\\c'),
        ("one\ntwo", "one\\ntwo"),
        ("one\r\x1b[2Ktwo", "one\\r\\x1b[2Ktwo"),
        ("one\x9b2Jtwo\x85", "one\\x9b2Jtwo\\x85"),
        ("one\u2028two\u202e", "one\\u2028two\\u202e"),
        ("größer", "größer"),
    ],
)
def test_a_name_neither_begins_a_line_nor_controls_a_terminal(
    capsys: pytest.CaptureFixture[str], text: str, shown: str
) -> None:
    found = LINE.fullmatch(logged(capsys, text))
    assert found
    assert found[1] == f"pod {shown}"


def test_nor_does_it_in_a_bare_line(capsys: pytest.CaptureFixture[str]) -> None:
    logfmt.start(agent_log, debug=False)
    logfmt.plain("state\n\x1b[31mforged")
    assert capsys.readouterr().err == "state\\n\\x1b[31mforged\n"


def test_a_warning_is_logged_when_it_comes_and_when_it_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    warnings = logfmt.NewWarnings(logging.getLogger("test"))
    for sentences in (("a",), ("a", "b"), ("b",), ("b", "a")):
        warnings.update(sentences)
    assert caplog.messages == ["a", "b", "a"]
    assert warnings.current == ("b", "a")
