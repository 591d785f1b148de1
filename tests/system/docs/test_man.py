"""The man page: complete, well-formed, and part of the wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib

import pytest

from aliquot.cli.completion import leaves
from aliquot.cli.framework.command_model import COMMON, NODE, OUTPUT

from .pages import HOUSE

sys.path.append(str(HOUSE))  # tools is not in the tests' path
from tools.docs import man

PAGE = HOUSE / "scripts/aliquot.1"


def plain(text: str) -> str:
    return text.replace(r"\-", "-").replace(r"\&", "").replace(r"\e", "\\")


def test_every_verb_has_its_options() -> None:
    sections = {
        title: body for title, _, body in (part.partition("\n") for part in plain(PAGE.read_text()).split("\n.SS ")[1:])
    }
    verbs = {" ".join(("aliquot", *path)): command for path, command in leaves() if path}
    assert sections.keys() == verbs.keys()
    for name, command in verbs.items():
        shown = re.findall(r"^\.B (.*)$", sections[name].partition("\n.SH ")[0], re.MULTILINE)
        assert shown == [option.shown for option in command.options if option not in (OUTPUT, NODE)], name
    common = plain(PAGE.read_text()).partition(".SH COMMON OPTIONS")[2].partition("\n.SH ")[0]
    assert re.findall(r"^\.B (.*)$", common, re.MULTILINE) == [o.shown for o in (OUTPUT, NODE, *COMMON)]


def test_no_text_is_taken_for_a_request() -> None:
    # troff treats a line that begins with a dot or an apostrophe as a request.
    known = {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".BR", ".RI", ".I", ".br", ".nf", ".fi", '.\\"'}
    lines = PAGE.read_text().splitlines()
    assert {line.split()[0] for line in lines if line.startswith((".", "'"))} <= known
    assert man._text(".5 is a share") == r"\&.5 is a share"
    assert man._text(r"a\b -x") == r"a\eb \-x"


@pytest.mark.parametrize("words", [("groff", "-ww", "-z", "-man", "-Tutf8"), ("mandoc", "-Tlint", "-Wwarning")])
def test_formatters_have_nothing_to_say(words: tuple[str, ...]) -> None:
    if not shutil.which(words[0]):
        pytest.skip(f"{words[0]} is not installed")
    done = subprocess.run([*words, str(PAGE)], capture_output=True, text=True)
    # The page has no date: it is generated, and a date would differ from commit to commit.
    warnings = [line for line in (done.stdout + done.stderr).splitlines() if "missing date" not in line]
    assert not warnings


def test_the_wheel_has_it() -> None:
    build = tomllib.loads((HOUSE / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build["shared-data"] == {"scripts/aliquot.1": "share/man/man1/aliquot.1"}
