"""Markdown for tickets: checked with a real Markdown parser and names that contain markup."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec.structs import replace

from aliquot.cli.command_table import ROOT, ticketed
from aliquot.cli.framework import markdown
from aliquot.cli.framework import parser as parse
from aliquot.cli.views import ticket
from aliquot.core.config.select.command_line import adhoc
from aliquot.core.model.inventory import Holder, Inventory
from aliquot.core.model.plan import Policy
from aliquot.core.planner.explain import explain
from aliquot.core.planner.plan import plan

from .conftest import Run, Sim

GOLDEN = Path(__file__).parent / "golden"
WRITE = os.environ.get("ALIQUOT_GOLDEN") == "write"
GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])

HOSTILE = (
    "a|b",
    "a`b",
    "``two`` `one`",
    "`",
    "a\\|b",
    "<script>alert(1)</script>",
    "<!-- gone",
    "</td></table>",
    "[click](https://bad.example/)",
    "![x](https://bad.example/x.png)",
    "https://bad.example/ www.bad.example",
    "**bold** _em_ ~~gone~~ $x^2$",
    "@everyone #1 !2 %3",
    ":tada: &lt; &#64;all",
    "# heading",
    "- item",
    "1. item",
    "1) item",
    "+ item",
    "===",
    "--- | ---",
    "```\n```\n# out",
    "line\nnext\r\nlast",
    "\x1b[31mred\x1b[0m\x07",
    "abc\u202edcb\u200b",
    "\\",
    "a\\",
)


def tokens(text: str) -> list[Token]:
    """Return every token, including nested ones."""
    return [inner for token in GFM.parse(text) for inner in (token, *(token.children or ()))]


def seen(text: str) -> str:
    """Return a sentence as the reader sees it."""
    inline = [t for t in tokens(text) if t.type in ("text", "code_inline", "softbreak")]
    return "".join(" " if t.type == "softbreak" else t.content for t in inline).replace("\u200b", "")


def expected(name: str) -> str:
    """Return a name as the reader should see it."""
    return " ".join(markdown.plain(name).split())


@pytest.mark.parametrize("name", HOSTILE)
def test_a_sentence_is_seen_as_it_is(name: str) -> None:
    made = markdown.prose(name)
    assert seen(made) == expected(name)
    assert {t.type for t in tokens(made)} <= {"paragraph_open", "paragraph_close", "inline", "text", "text_special"}
    assert not re.search(r"(?<!\\)[@#!%]\w|://|www\.", made)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_a_code_span_in_text_and_tables(name: str) -> None:
    assert [t.content for t in tokens(markdown.code(name)) if t.type == "code_inline"] == [expected(name)]
    rows = markdown.table(("a", "b"), [(markdown.code(name, cell=True), markdown.prose(name)), ("x", "y")])
    found = tokens("\n".join(rows))
    assert [t.content for t in found if t.type == "code_inline"] == [expected(name)]
    assert sum(t.type == "td_open" for t in found) == 4
    assert not {"html_inline", "html_block", "link_open", "image", "em_open", "strong_open", "s_open"} & {
        t.type for t in found
    }


@pytest.mark.parametrize("name", HOSTILE)
def test_a_block_ends_where_it_should(name: str) -> None:
    found = GFM.parse("\n".join([*markdown.block(name), "after"]))
    assert [t.type for t in found] == ["fence", "paragraph_open", "inline", "paragraph_close"]


@pytest.fixture
def busy(a100: Sim) -> Sim:
    a100.node.set_mode(0, True)
    for start in (0, 1, 4):
        a100.node.create(0, "1g.5gb", start)
    a100.node.hold(0, 7, pid=8812)
    return a100


@pytest.fixture
def inventory(busy: Sim) -> Inventory:
    from aliquot.node.connect import connect

    with connect(busy.name) as connection:
        return connection.backend.read()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_whole_ticket_keeps_its_shape(name: str, inventory: Inventory) -> None:
    # No name of a node, driver, holder or request changes the structure of the ticket.

    def shape(name: str) -> list[list[tuple[str, str]]]:
        (gpu,) = inventory.gpus
        held = replace(gpu.instances[0], holders=(Holder("job", "8812", name),), held=True)
        found = replace(
            inventory, node=f"n{name}", driver=f"5{name}", gpus=(replace(gpu, instances=(held, *gpu.instances[1:])),)
        )
        request = replace(adhoc(["0"], ["3g.20gb,1g.5gb"], found), name=f"w{name}")
        blocked = replace(adhoc(["0"], ["7g.40gb"], found), name=f"w{name}")
        made, refused = (plan(found, each, Policy()) for each in (request, blocked))
        made = replace(made, notes=(f"note {name}",))
        assert made.changes
        assert refused.blocked
        texts = [
            ticket.plan(made, found, ["aliquot apply plan.json"]),
            ticket.plan(refused, found, []),
            ticket.explanation(explain(found, "7g.40gb").answers, found, "7g.40gb", ""),
            ticket.verification(found, (), f"w{name}", (f"note {name}",), ""),
            ticket.shown(found, found.gpus, f"drawn\n{name}"),
        ]
        assert not any("\x1b" in text or "\u202e" in text for text in texts)
        quiet = {"text", "text_special", "code_inline", "softbreak", "inline"}
        return [[(t.type, t.tag) for t in tokens(text) if t.type not in quiet] for text in texts]

    assert shape(name) == shape("plain")


def compare(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.md"
    if WRITE:
        path.write_text(text)
    assert text == path.read_text()


def test_tickets_as_people_see_them(busy: Sim, run: Run) -> None:
    made = run("plan", "--gpu", "0", "--mig", "3g.20gb,1g.5gb", "-o", "markdown")
    assert (made.code, made.err) == (10, "")
    compare("ticket_plan", made.out)
    refused = run("plan", "--gpu", "0", "--mig", "7g.40gb", "-o", "markdown")
    assert (refused.code, refused.err) == (20, "")
    compare("ticket_blocked", refused.out)
    drift = run("verify", "--gpu", "0", "--mig", "2g.10gb", "-o", "markdown")
    assert drift.code == 30
    compare("ticket_drift", drift.out)
    compare("ticket_explain", run("explain", "4g.20gb", "-o", "markdown").out)
    compare("ticket_show", run("show", "0", "-o", "markdown").out)


def commands(text: str) -> list[str]:
    return [
        line[2:] for t in GFM.parse(text) if t.type == "fence" for line in t.content.splitlines() if line[:2] == "$ "
    ]


def test_the_commands_of_a_ticket_apply_its_plan(busy: Sim, run: Run) -> None:
    made = run("plan", "--gpu", "0", "--mig", "3g.20gb,1g.5gb", "-o", "markdown", "--sim", busy.name)
    first, second = commands(made.out)
    saved = run(*shlex.split(first)[1:])
    assert saved.code == 10
    assert run(*shlex.split(second)[1:]).code == 0
    assert "as requested" in run("verify", "--gpu", "0", "--mig", "3g.20gb,1g.5gb", "-o", "markdown").out
    assert run("plan", "--gpu", "0", "--mig", "3g.20gb,1g.5gb", "-o", "markdown").out.startswith(
        "## Nothing to do for "
    )


def test_a_saved_plan_is_named(busy: Sim, run: Run) -> None:
    made = run("plan", "--gpu", "0", "--mig", "3g.20gb,1g.5gb", "-o", "markdown", "--out", "our plan.json")
    assert commands(made.out) == ["aliquot apply 'our plan.json'"]
    with open("wish.yaml", "w") as stream:
        stream.write("version: aliquot/v1\nconfigs: {one: [{gpus: all, mig: {1g.5gb: 2}}]}\n")
    made = run("plan", "-f", "wish.yaml", "-o", "markdown")
    assert made.out.startswith("## Plan for one: one\n")
    for command in commands(made.out):
        found = parse.find(ROOT, shlex.split(command)[1:])
        parse.typed_options(found)


def test_past_changes(busy: Sim, run: Run) -> None:
    assert "Nothing is recorded." in run("history", "-o", "markdown").out
    run("apply", "--gpu", "0", "--mig", "3g.20gb,1g.5gb")
    reported = run("history", "-o", "markdown").out
    assert "created 3g.20gb at 4:4 | done |" in reported.replace("<br>", " | ")


def test_who_has_no_markdown_says_who_has(a100: Sim, run: Run) -> None:
    assert ticketed() == ["show", "plan", "verify", "explain", "history"]
    refused = run("profiles", "-o", "markdown")
    assert refused.code == 2
    assert "aliquot profiles has no markdown output: use it with show, plan, verify, explain, history" in refused.err
    assert run("show", "--watch", "-o", "markdown").code == 2
