"""Rules of the prose linter: the texts that it refuses, and the quoted code that it accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import prose_lint

LONG = "word\n" * 31
ADVERB, VERB, PRONOUN = "anew", "told", "nobody"
"""Banned words, which whole sentences in this file may not contain."""


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("x.md", f"Run it {ADVERB}.\n", "banned"),
        ("x.md", f"```sh\n{ADVERB}\n```\nRun `{ADVERB}` again.\n", ""),
        ("x.md", f"<!-- {ADVERB} -->\nRun it.\n", ""),
        ("x.md", f"{LONG}\n", "sentence of 31 words"),
        ("x.md", "- one item\n" * 31, ""),
        ("x.md", "Note: this: that.\n", "two colons"),
        ("x.md", "x" * 101 + "\n", "line of 101 characters"),
        ("x.md", f"| a cell | {VERB} |\n", "banned"),
        ("x.html", f"<p title='{{{{ {ADVERB} }}}}'>{{{{ {ADVERB} }}}} Done</p>\n", ""),
        ("x.html", f"<p>{PRONOUN} asks</p>\n", "banned"),
        ("x.sh", f"echo {ADVERB}  # {PRONOUN} asks\n", "banned"),
        ("x.py", 'def f():\n    """The size."""\n', "docstring does not start with a verb"),
        ("x.py", 'def f():\n    """Return the size."""\n', ""),
        ("x.py", 'def test_f():\n    """A size is whole."""\n', ""),
        ("x.py", '@property\ndef f():\n    """The size."""\n', ""),
        ("x.py", 'class A:\n    """What is there."""\n', "docstring of a class starts with"),
        ("x.py", f'x = 1\n"""What was {VERB}."""\n', "banned"),
        ("x.py", f"x = 1  # asked {ADVERB}\n", "banned"),
        ("x.py", f"x = f'{{y}} is asked {ADVERB} by us'\n", "banned"),
        ("x.py", 'x = {"told": "wish"}\n', ""),
    ],
)
def test_a_rule(tmp_path: Path, name: str, text: str, rule: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = {finding.rule for finding in prose_lint.findings(name, path)}
    assert found == ({rule} if rule else set())
