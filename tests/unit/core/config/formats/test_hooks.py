"""mig-parted's hooks files."""

from __future__ import annotations

import pytest

from aliquot.core.config.formats.hooks import Hook, load_hooks
from aliquot.errors import ConfigError

GOOD = """\
version: v1
hooks:
  apply-start:
  - workdir: "/etc/nvidia-mig-manager"
    command: "/bin/bash"
    args: ["-x", "-c", "source hooks.sh; apply-start ${MIG_PARTED_SELECTED_CONFIG}"]
  - {command: /bin/true, envs: {A: "1", B: two}}
  pre-apply-mode: []
  apply-exit: ~
"""


def test_commands_in_order() -> None:
    hooks = load_hooks(GOOD, "f")
    first, second = hooks.of("apply-start")
    assert first.workdir == "/etc/nvidia-mig-manager"
    assert first.args[0] == "-x"
    assert second == Hook("/bin/true", (), {"A": "1", "B": "two"})
    assert hooks.of("pre-apply-mode") == hooks.of("apply-exit") == hooks.of("pre-apply-config") == ()
    assert hooks.notes == ()


def test_notes_on_what_will_not_work() -> None:
    hooks = load_hooks("version: v1\nhooks: {apply-begin: [{command: /bin/true}], apply-exit: [{command: sh}]}", "f")
    assert len(hooks.notes) == 2
    assert "never fires" in hooks.notes[0]
    assert "absolute path" in hooks.notes[1]


FAULTS = [
    ("version: v2\nhooks: {}", "version must be v1"),
    ("hooks: {}", "version must be v1"),
    ("version: v1", "'hooks' is missing"),
    ("version: v1\nhooks: [a]", "'hooks' must be a mapping"),
    ("version: v1\nhooks: {apply-start: {command: x}}", "must be a list of commands"),
    ("version: v1\nhooks: {apply-start: [x]}", "a command must be a mapping"),
    ("version: v1\nhooks: {apply-start: [{args: [a]}]}", "lacks the key 'command'"),
    ("version: v1\nhooks: {apply-start: [{command: [a]}]}", "'command' must be text"),
    ("version: v1\nhooks: {apply-start: [{command: /a, args: b}]}", "'args' must be a list"),
    ("version: v1\nhooks: {apply-start: [{command: /a, args: [1]}]}", 'write it in quotes, "1"'),
    ("version: v1\nhooks: {apply-start: [{command: /a, envs: {A: 1}}]}", "the variable 'A' must be text"),
    ("version: v1\nhooks: {apply-start: [{command: /a, cmd: b}]}", "unknown key 'cmd'"),
    ("version: v1\nhooks: {}\nhooks: {}", "written twice"),
]


@pytest.mark.parametrize(("text", "words"), FAULTS)
def test_faults(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_hooks(text, "f")
    assert any(words in line for line in caught.value.details), caught.value.details


def test_compat_passes_over_what_mig_parted_passes_over() -> None:
    assert load_hooks("hooks: {apply-start: [{command: /a, more: 1}]}", "f", compat=True).of("apply-start")
    assert load_hooks("version: x", "f", compat=True).hooks == {}


def test_not_a_hooks_file() -> None:
    for text in ("", "[]", "7"):
        with pytest.raises(ConfigError, match="not a hooks file"):
            load_hooks(text, "f")
