"""Every command of every page is typed in a separate environment, and its effect and output match the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from . import cli_examples
from .environments import shell
from .pages import Page, every, read
from .typing_in import bare, listed, typed

PAGES = [read(path) for path in every()]


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if p.commands and p.name != cli_examples.PAGE], ids=lambda p: p.name)
def test_it_is_as_the_page_says(page: Page) -> None:
    result = typed(page)
    messages = [f"{page.name}:{fault.line}: {fault.command}\n{fault.what}" for fault in result.faults]
    assert not messages, "\n\n".join(["make docs-update writes what is really printed into the page", *messages])


def test_what_a_page_writes_does_not_reach_the_host() -> None:
    with shell(("sim",)) as (bash, _):
        mark = f"{bash.folder.parent.name}.mark"
        for folder in ("/etc", "/opt", "/usr/local", "/run"):
            assert bash.run(f"echo written > {folder}/{mark} && cat {folder}/{mark}") == (0, "written\n")
            assert not Path(folder, mark).exists()


class TestTheCommandLine:
    """docs/cli.md has examples for each verb, which are typed in the environments of ``cli_environments.yaml``."""

    @pytest.mark.slow
    @pytest.mark.parametrize("group", cli_examples.groups(), ids=lambda g: g.environment)
    def test_its_examples_work(self, group: cli_examples.Group) -> None:
        reported = cli_examples.typed(group)
        assert not reported, "\n\n".join(reported)

    def test_each_example_is_typed_once(self) -> None:
        there = {bare(c.text) for page in PAGES if page.name == cli_examples.PAGE for c in page.commands}
        typed_here = Counter(one.text for group in cli_examples.groups() for one in group.typed if not one.unseen)
        left_out = {row.command for row in listed() if row.page == cli_examples.PAGE}
        assert [text for text, times in typed_here.items() if times > 1] == []
        assert there - typed_here.keys() - left_out == set(), (
            "tests/system/docs/cli_environments.yaml types none of these"
        )
        assert typed_here.keys() - there == set(), "these are not examples any more"


class TestNotRun:
    """``not_run.yaml``: commands that cannot be typed here, with the reasons."""

    def test_each_is_in_its_page_once(self) -> None:
        rows = listed()
        assert Counter((row.page, row.command) for row in rows).most_common(1)[0][1] == 1
        there = {(page.name, bare(command.text)) for page in PAGES for command in page.commands}
        gone = [(row.page, row.command) for row in rows if (row.page, row.command) not in there]
        assert not gone, "these are not in a page any more"

    def test_each_says_why(self) -> None:
        assert [row for row in listed() if len(row.reason) < 20] == []

    def test_they_are_few(self, record_property: Callable[[str, object], None]) -> None:
        typed_here, left_out = sum(len(p.commands) for p in PAGES), len(listed())
        print(f"{typed_here - left_out} commands of {len(PAGES)} pages are typed, {left_out} are not")
        record_property("not_run", left_out)
        assert left_out <= typed_here // 8
