"""Every ``aliquot`` command in the pages and shipped files is valid on Aliquot's own command line."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import aliquot
from aliquot.cli.command_table import ROOT
from aliquot.cli.framework import parser as parse
from aliquot.errors import UsageError

HOUSE = Path(__file__).resolve().parents[3]
MADE = {HOUSE / "docs/cli.md", *HOUSE.glob("docs/reference/*.md")}
PAGES = sorted({*HOUSE.glob("docs/**/*.md"), HOUSE / "README.md", *HOUSE.glob("deploy/**/*.md")} - MADE)
SHIPPED = sorted(p for p in HOUSE.glob("deploy/s*/*") if p.is_file() and p.suffix != ".md")

_SPAN = re.compile(r"`(?:sudo )?(aliquot [a-z][^`]*)`")
_LINE = re.compile(
    r"(?:^|[\s(;&|=])(?:\$\()?(?:exec )?"
    r"(?:\$\{ALIQUOT:-aliquot\}|\"\$\{ALIQUOT:-aliquot\}\"|(?:/usr/local/bin/)?aliquot) (?=[a-z-])"
)
_END = re.compile(r"\s{2,}|\s\"?\$|\s#|[;|)<>`]|&&|\.\.\.|\s2>|,$|\s\\$")


def commands(text: str, *, page: bool) -> Iterator[tuple[int, str]]:
    """Yield the commands in a text with their lines. In pages: code spans, fenced blocks and lines indented by four
    spaces.
    """
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        code = fenced or line.startswith("    ") or not page
        if page and not code:
            for span in _SPAN.findall(line):
                yield number, re.sub(r"(\w+)(?:\|\w+)+", r"\1", span)
        elif "helm " in line:
            continue  # the release and the chart are named aliquot
        elif not line.lstrip().startswith("#") or line.lstrip().startswith("# aliquot "):
            for match in _LINE.finditer(line):
                yield number, "aliquot " + _END.split(line[match.end() :])[0].strip()


def check(command: str) -> None:
    """Fail unless this is a valid command. The name of a verb or a group is also valid, as pages mention these."""
    try:
        words = shlex.split(command.replace("{host}", "host"))[1:]
        found = parse.find(ROOT, words)
        if found.help_only or "--help" in found.rest or not found.rest:
            return
        parse.typed_options(found)
    except (UsageError, ValueError) as error:
        raise AssertionError(f"{command!r}: {getattr(error, 'brief', error)}") from error


FOUND = [
    pytest.param(command, id=f"{path.relative_to(HOUSE)}:{number}")
    for path in (*PAGES, *SHIPPED)
    for number, command in commands(path.read_text(), page=path.suffix == ".md")
]


def test_there_is_something_to_check() -> None:
    names = {str(p.id).partition(":")[0] for p in FOUND}
    assert {"docs/slurm.md", "docs/docker.md", "README.md", "deploy/slurm/aliquot-slurm.service"} <= names
    assert len(FOUND) > 100


@pytest.mark.parametrize("command", FOUND)
def test_it_parses(command: str) -> None:
    check(command)


def test_what_units_start_is_whole() -> None:
    # A unit cannot add arguments.
    lines = [
        line for path in SHIPPED for line in path.read_text().splitlines() if re.match(r"Exec\w+=.*\baliquot ", line)
    ]
    assert len(lines) >= 4
    for line in lines:
        found = parse.find(ROOT, shlex.split(line[line.index("aliquot ") :])[1:])
        assert found.command.module
        parse.typed_options(found)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_takes_the_units() -> None:
    units = [str(p) for p in HOUSE.glob("deploy/*/*") if p.suffix in (".service", ".timer")]
    assert len(units) >= 9
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
    elsewhere = re.compile(r"Command \S+/(aliquot|slurmd|modprobe) is not executable")
    assert not [line for line in done.stderr.splitlines() if "aliquot" in line and not elsewhere.search(line)]


def test_the_example_settings_load_and_name_every_key() -> None:
    from aliquot.slurm.controller import settings_parser as settings_file

    text = (HOUSE / "deploy/slurm/slurm.yaml").read_text()
    found = settings_file.load(text, "slurm.yaml")
    assert [h.name for h in found.hosts][:2] == ["gpu01", "gpu02"]
    assert found.hosts[0].reach[-1] == "root@gpu01"
    for keys in (settings_file._TOP, settings_file._CLUSTER, settings_file._PARTITION, settings_file._LIMITS):
        assert {key for key in keys if not re.search(rf"(?m)(^|[\s{{#]){key}:", text)} == set()


def test_the_controllers_unit_waits_for_the_longest_change() -> None:
    from aliquot.slurm.controller import settings_parser as settings_file

    found = settings_file.load((HOUSE / "deploy/slurm/slurm.yaml").read_text(), "slurm.yaml")
    unit = (HOUSE / "deploy/slurm/aliquot-slurm.service").read_text()
    (seconds,) = re.findall(r"(?m)^TimeoutStopSec=(\d+)$", unit)
    assert int(seconds) > found.apply_s


def test_the_playbook_is_clean_and_pins_this_version() -> None:
    folder = HOUSE / "deploy/ansible"
    files = sorted(map(str, folder.rglob("*.yml")))
    assert len(files) >= 8
    words = [sys.executable, "-m", "yamllint", "--strict", "-c", str(folder / ".yamllint"), *files]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    defaults = (folder / "roles/aliquot_slurm/defaults/main.yml").read_text()
    assert f'aliquot_version: "{aliquot.__version__}"' in defaults


def test_one_that_is_none_would_be_found() -> None:
    text = (
        "see `aliquot pln`\n\n    $ aliquot slurm aply --gpu 0   # no\n    x=$(aliquot docker run-args --nme x) && y\n"
    )
    found = [command for _, command in commands(text, page=True)]
    assert found == ["aliquot pln", "aliquot slurm aply --gpu 0", "aliquot docker run-args --nme x"]
    for command in found:
        with pytest.raises(AssertionError):
            check(command)
