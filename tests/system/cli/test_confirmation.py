"""Before GPUs change, a user at a terminal sees the plan and confirms it. Scripts are not asked."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from support.terminal import Played

from .conftest import Run, Sim, _node

REQUEST = ("--gpu", "0", "--mig", "3g.20gb")
QUESTION = "Apply this plan? [y/N]"
ANSWERS = {
    "no": ("n\n", 10),
    "nothing": ("\n", 10),
    "else": ("yikes\n", 10),
    "end": ("\x04", 10),
    "interrupt": ("\x03", 130),
}
Play = Callable[..., Played]


@pytest.fixture
def play() -> Iterator[Play]:
    started: list[Played] = []

    def start(*words: str, shell: str = "", stdout: int = -1) -> Played:
        started.append(Played(*words, shell=shell, stdout=stdout, environment={"NO_COLOR": "1"}))
        return started[-1]

    yield start
    for each in started:
        each.close()


def test_a_person_is_shown_the_plan_and_agrees(a100: Sim, play: Play) -> None:
    shown = play("apply", *REQUEST)
    before = shown.shows(QUESTION).text
    assert "create" in before
    assert "3g.20gb" in before
    assert not a100.writes()
    shown.type("y\n")
    assert shown.ended() == 0
    assert "done: kept 0, destroyed 0, created 1" in shown.terminal.text
    assert shown.terminal.text.count("[y/N]") == 1


@pytest.mark.parametrize(("typed", "code"), ANSWERS.values(), ids=ANSWERS)
def test_any_other_answer_changes_nothing(typed: str, code: int, a100: Sim, play: Play) -> None:
    shown = play("apply", *REQUEST)
    shown.shows(QUESTION)
    shown.type(typed)
    assert shown.ended() == code
    assert "nothing was changed" in shown.terminal.lines[-1 if code == 10 else -2]
    assert "goes on from where it stopped" not in shown.terminal.text
    assert not a100.writes()


@pytest.mark.parametrize("words", [("--yes",), ("-y",)])
def test_yes_is_not_asked(words: tuple[str, ...], a100: Sim, play: Play) -> None:
    shown = play("apply", *REQUEST, *words)
    assert shown.ended() == 0
    assert QUESTION not in shown.raw


def test_nothing_to_do_and_a_refusal_are_not_asked(a100: Sim, run: Run, play: Play) -> None:
    assert run("apply", *REQUEST).code == 0  # this process has no terminal at stdin
    assert play("apply", *REQUEST).ended() == 0
    a100.node.hold(0, a100.node.show()["gpus"][0]["instances"][0]["id"])
    assert play("apply", "--gpu", "0", "--mig", "7g.40gb").ended() == 20


def test_a_document_stays_whole_and_the_question_is_on_the_terminal(a100: Sim, play: Play, tmp_path: Path) -> None:
    # stdout and stderr go to files, so the question appears on the terminal at stdin.
    log = tmp_path / "log"
    with (tmp_path / "out").open("wb") as out:
        shown = play(
            *("apply", *REQUEST, "-o", "json"), shell=f"""sh -c 'exec "$0" "$@" 2>{log}'""", stdout=out.fileno()
        )
        shown.shows(QUESTION)
        shown.type("n\n")
        assert shown.ended() == 10
    assert msgspec.json.decode((tmp_path / "out").read_bytes())["status"] == "declined"
    assert not log.read_text()
    assert not a100.writes()


def test_stdin_that_can_only_be_read_is_asked_on_the_terminal_too(a100: Sim, play: Play, tmp_path: Path) -> None:
    shown = play("apply", *REQUEST, shell=f"""sh -c 'exec "$0" "$@" </dev/tty 2>{tmp_path / "log"}'""")
    assert "3g.20gb" in shown.shows(QUESTION, 20).text
    shown.type("n\n")
    assert shown.ended() == 10
    assert not a100.writes()


def test_where_no_question_can_be_shown_none_is_waited_for(a100: Sim, play: Play, tmp_path: Path) -> None:
    # stdin is a read-only terminal, stderr is a file, and the session has no controlling terminal.
    log = tmp_path / "log"
    shown = play("apply", *REQUEST, shell=f"""sh -c 'exec setsid -w "$0" "$@" <"$(tty)" 2>{log}'""")
    assert shown.ended(20) == 2
    assert "add --yes" in log.read_text()
    assert not a100.writes()


@pytest.mark.parametrize("words", [("apply", "plan.json"), ("restore", "before.json"), ("restore", "--boot")])
def test_a_plan_a_checkpoint_and_the_boot_record_are_asked_about(
    words: tuple[str, ...], a100: Sim, run: Run, play: Play
) -> None:
    assert run("apply", *REQUEST).code == 0
    assert run("checkpoint", "--out", "before.json").code == 0
    a100.node.destroy(0, a100.node.show()["gpus"][0]["instances"][0]["id"])
    assert run("plan", *REQUEST, "--out", "plan.json").code == 10
    _declines(play(*words), a100)


@pytest.mark.parametrize("words", [("vgpu", "enable", "0"), ("passthrough", "enable", "0")])
def test_functions_and_whole_gpus_are_asked_about(words: tuple[str, ...], l40s: Sim, play: Play) -> None:
    _declines(play(*words), l40s)


@pytest.fixture
def l40s(state: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sim]:
    yield from _node(state, "l40s:vfio", "asked", monkeypatch)


def _declines(shown: Played, sim: Sim) -> None:
    before = len(sim.writes())
    shown.shows(QUESTION)
    shown.type("n\n")
    assert shown.ended() == 10
    assert len(sim.writes()) == before


def test_a_plan_that_is_no_longer_right_is_refused_before_the_question(a100: Sim, run: Run, play: Play) -> None:
    assert run("plan", *REQUEST, "--out", "plan.json").code == 10
    text = Path("plan.json").read_text()
    Path("plan.json").write_text(text.replace('"created": 1', '"created": 2'))
    shown = play("apply", "plan.json")
    assert shown.ended() == 20
    assert QUESTION not in shown.raw


def test_a_signal_at_the_question_changes_nothing(a100: Sim, play: Play) -> None:
    shown = play("apply", *REQUEST)
    shown.shows(QUESTION)
    shown.process.send_signal(signal.SIGTERM)
    assert shown.ended() in (143, -signal.SIGTERM)
    assert not a100.writes()
