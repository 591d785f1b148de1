"""Tests of the suite's own parser: what counts as a command, and when an output matches."""

from __future__ import annotations

from pathlib import Path

import pytest

from .compare import agrees
from .pages import Command, File, read
from .typing_in import bare, typed, update

TEXT = """\
<!-- runs: sim a30 NODE=n1 -->

<!-- setup: echo one >made -->

<!-- exit: 3 -->
```console
$ cat made
one
$ sh -c 'echo NODE
> exit 3'
n1
```

1. in a list

   <!-- file: f.yaml -->
   ```yaml
   a: NODE
   ```

   ```sh
   # a comment
   cat <<END >g
   two
   END
   cat \\
     g f.yaml
   ```
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "page.md"
    made.write_text(TEXT)
    return made


def test_a_page_is_read(path: Path) -> None:
    page = read(path)
    assert (page.environment, page.words) == (("sim", "a30"), {"NODE": "n1"})
    assert [step.text for step in page.steps] == [
        "echo one >made",
        "cat made",
        "sh -c 'echo NODE\nexit 3'",
        "a: NODE\n",
        "cat <<END >g\ntwo\nEND",
        "cat \\\n  g f.yaml",
    ]
    assert [c.exit for c in page.commands] == [0, 0, 3, 0, 0]
    assert [c.shown for c in page.commands][1:3] == [("one",), ("n1",)]
    assert isinstance(page.steps[3], File)


def test_it_is_typed(path: Path) -> None:
    result = typed(read(path))
    assert result.faults == []
    assert result.ran == 5


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("\none\n", "\nanother\n", "it shows"),
        ("exit: 3", "exit: 4", "exit code 3, and not 4"),
        ("cat made", "cat made nothing", "exit code 1, and not 0"),
    ],
)
def test_what_is_not_so_is_found(path: Path, before: str, after: str, message: str) -> None:
    path.write_text(TEXT.replace(before, after))
    (fault,) = typed(read(path)).faults
    assert message in fault.what


def test_what_is_shown_can_be_written_again(path: Path) -> None:
    path.write_text(TEXT.replace("\none\n", "\nold\nolder\n"))
    page = read(path)
    assert update(page, typed(page)) == 1
    assert path.read_text() == TEXT


def test_a_program_in_the_background_is_there_until_the_page_ends(path: Path) -> None:
    path.write_text(
        "<!-- runs: sim -->\n<!-- background -->\n```console\n$ echo up; sleep 600\nup\n```\n"
        "```console\n$ pgrep -c -f 'sleep 60[0]' >/dev/null && echo there\nthere\n```\n"
    )
    assert typed(read(path)).faults == []


def test_what_comes_late_is_waited_for(path: Path) -> None:
    path.write_text(
        "<!-- runs: sim -->\n```sh\n(sleep 1; echo late >f) &\n```\n"
        "<!-- eventually -->\n```console\n$ cat f\nlate\n```\n"
    )
    assert typed(read(path)).faults == []


@pytest.mark.parametrize(
    "text",
    [
        "```console\nno command\n```\n",
        "```sh\nif true; then\n```\n",
        "```sh\ntrue\n",
        "<!-- exit: 1 2 -->\n```sh\ntrue\n```\n",
        "<!-- exit: 1 -->\n```yaml\na: b\n```\n",
        "<!-- exit: 1 -->\n",
    ],
)
def test_what_cannot_be_understood_is_no_page(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(AssertionError):
        read(path)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a", "a\nb", False),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...", "a", True),
        ("...", "", True),
        ("x ... z", "x and y and z", True),
        ("x ... z", "x and y", False),
        ("id 5b5b7326-6bb8-48cb-a321-8fa58ccbb38c", "id 00000000-6bb8-48cb-a321-8fa58ccbb38c", True),
        ("done (1.9 s)", "done (12 s)", True),
        ("n1   Ready   12s", "n1   Ready   3m5s", True),
        ("at 12:03:04", "at 01:00:00", True),
        ("http://127.0.0.1:8300/", "http://127.0.0.1:41234/", True),
        ("a  b", "a b", False),
        ("2 kept", "3 kept", False),
    ],
)
def test_when_an_output_is_as_shown(shown: str, printed: str, same: bool) -> None:
    assert agrees(tuple(shown.splitlines()), printed.splitlines()) is same


def test_a_listed_command_is_found_without_its_comment() -> None:
    assert bare("helm install x \\\n    --set a=b     # where it is") == "helm install x --set a=b"
    assert Command(1, "x").exit == 0
