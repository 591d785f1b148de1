"""History for users, from the records of a journal."""

from __future__ import annotations

from aliquot.core.engine.history import IN_PROGRESS, INTERRUPTED, PastRun, newest_runs, past_runs, total_text
from aliquot.core.engine.ports import FORMAT, JournalEntry, JournalKind

GPU = "0000:07:00.0"


def run(
    name: str, *records: tuple[JournalKind, str], at: float = 100.0, by: str = "ann", text: str = "train"
) -> list[JournalEntry]:
    """Build a run that began at ``at``. Each record is a kind with a step or a text, one second after the other."""
    found = [JournalEntry("begin", name, boot="b", text=text, at=at, by=by)]
    for n, (kind, word) in enumerate(records, start=1):
        if kind in ("intent", "done"):
            found.append(JournalEntry(kind, name, gpu=GPU, step=word, at=at + n))
        else:
            found.append(JournalEntry(kind, name, gpu=GPU if kind == "failed" else "", text=word, at=at + n))
    return found


def only(records: list[JournalEntry], *, running: bool = False) -> PastRun:
    (past,) = past_runs(records, running=running)
    return past


def both(step: str) -> tuple[tuple[JournalKind, str], tuple[JournalKind, str]]:
    return ("intent", step), ("done", step)


def test_a_run_says_when_for_whom_what_and_how_it_ended() -> None:
    past = only(
        run("r", *both("mode enabled"), *both("create gi 3g.40gb 4:4"), *both("create ci 2/2"), ("end", "done"))
    )
    assert (past.at, past.ended, past.by, past.name, past.outcome) == (100.0, 107.0, "ann", "train", "done")
    assert past.gpus == (GPU,)
    assert past.actions == (f"GPU {GPU}: set MIG mode to enabled", f"GPU {GPU}: created 3g.40gb at 4:4")
    assert past.totals == "1 created, MIG mode set"
    assert (past.undone, past.failure) == ((), "")


def test_a_run_over_several_gpus_says_what_was_done_to_how_many() -> None:
    done = [
        JournalEntry("done", "r", gpu=gpu, step=step)
        for gpu in ("0000:01:00.0", "0000:02:00.0")
        for step in ("mode enabled", "create gi 1g.5gb 0:1")
    ]
    done += [JournalEntry("done", "r", gpu=GPU, step=step) for step in ("functions 0", "levitate 3")]
    assert total_text(done) == "2 created, MIG mode set on 2 GPUs, virtual functions switched, levitate 3"


def test_every_step_of_the_engine_has_words() -> None:
    steps = {
        "destroy gi 7 1g.10gb 0:1": "destroyed 1g.10gb at 0:1",
        "destroy vgpu NVIDIA A2-4Q 0000:01:00.4 0b1c": "destroyed vGPU NVIDIA A2-4Q on 0000:01:00.4",
        "create vgpu GRID T4-16C 0000:01:00.0 0b1c": "created vGPU GRID T4-16C on 0000:01:00.0",
        "functions 16": "switched virtual functions on (16)",
        "functions 0": "switched virtual functions off",
        "mixed-size on": "switched mixed-size mode on",
        "scheduler equal-share,2ms": "set the scheduler to equal-share,2ms",
        "passthrough on": "switched passthrough of the whole GPU on",
        "passthrough off 0000:01:00.4": "switched passthrough of virtual function 0000:01:00.4 off",
        "reset": "reset",
        "something of a later version": "something of a later version",
    }
    for step, words in steps.items():
        assert only(run("r", *both(step), ("end", "done"))).actions == (f"GPU {GPU}: {words}",)


def test_compute_instances_are_reported_only_where_they_alone_changed() -> None:
    alone = only(run("r", *both("destroy ci 7/0"), *both("create ci 7/1"), ("end", "done")))
    assert alone.actions == (
        f"GPU {GPU}: destroyed a compute instance in instance 7",
        f"GPU {GPU}: created a compute instance in instance 7",
    )


def test_what_failed_is_reported_with_what_was_taken_back() -> None:
    forth = both("destroy gi 7 1g.10gb 0:1"), both("create gi 2g.20gb 0:2")
    back = both("destroy gi 9 2g.20gb 0:2"), both("create gi 1g.10gb 0:1")
    records = run(
        "r",
        *forth[0],
        *forth[1],
        ("intent", "create gi 2g.20gb 2:2"),
        ("failed", "the driver failed"),
        ("undo", "the driver failed"),
        *back[0],
        *back[1],
        ("end", "undone"),
    )
    past = only(records)
    assert past.outcome == "undone"
    assert past.failure == "the driver failed"
    assert [a.partition(": ")[2] for a in past.actions] == ["destroyed 1g.10gb at 0:1", "created 2g.20gb at 0:2"]
    assert [a.partition(": ")[2] for a in past.undone] == ["destroyed 2g.20gb at 0:2", "created 1g.10gb at 0:1"]


def test_what_ended_before_anything_was_touched_was_refused() -> None:
    # No action failed, and no previous state was restored.
    held: tuple[JournalKind, str] = ("failed", "the instance is held by process 4711")
    assert (
        only(run("r", held, ("undo", "the instance is held by process 4711"), ("end", "undone"))).outcome == "refused"
    )
    tried = run("r", ("intent", "create gi 9 3g.20gb 4:4"), ("failed", "no"), ("undo", "no"), ("end", "undone"))
    assert only(tried).outcome == "undone"


def test_an_end_that_this_version_does_not_know_is_reported_as_it_stands() -> None:
    assert str(only(run("r", *both("mode enabled"), ("end", "postponed"))).outcome) == "postponed"


def test_a_run_that_never_ended_says_what_it_was_at() -> None:
    cut = only(run("r", *both("mode enabled"), ("intent", "create gi 2g.20gb 2:2")))
    assert cut.outcome == INTERRUPTED
    assert cut.failure == (f"it ended while creating 2g.20gb at 2:2 on GPU {GPU}: that may have happened or not")
    between = only(run("r", *both("mode enabled")))
    assert (between.outcome, between.failure) == (INTERRUPTED, "it ended before all actions were done")


def test_only_the_last_run_can_be_under_way() -> None:
    records = [*run("a", *both("reset"), at=1), *run("b", *both("reset"), at=50)]
    last, first = past_runs(records, running=True)
    assert (last.run, last.outcome, last.failure) == ("b", IN_PROGRESS, "")
    assert (first.run, first.outcome) == ("a", INTERRUPTED)


def test_a_run_that_began_before_the_lock_was_taken_is_not_under_way() -> None:
    # The current holder of the lock has not begun yet, or writes no journal.
    records = run("dead", *both("reset"), at=100)
    assert past_runs(records, running=True, since=250.0)[0].outcome == INTERRUPTED
    assert past_runs(records, running=True, since=100.02)[0].outcome == IN_PROGRESS, "times are rounded"
    assert past_runs(run("old", *both("reset"), at=0), running=True, since=250.0)[0].outcome == IN_PROGRESS


def test_the_newest_comes_first_and_runs_side_by_side_are_kept_apart() -> None:
    a, b = run("a", *both("reset"), ("end", "done"), at=1), run("b", *both("mode enabled"), ("end", "done"), at=2)
    mixed = [record for pair in zip(a, b, strict=True) for record in pair]
    assert [(p.run, p.outcome, len(p.actions)) for p in past_runs(mixed)] == [("b", "done", 1), ("a", "done", 1)]


def test_an_old_journal_has_no_times() -> None:
    past = only(
        [
            JournalEntry("begin", "r"),
            JournalEntry("done", "r", gpu=GPU, step="reset"),
            JournalEntry("end", "r", text="done"),
        ]
    )
    assert (past.at, past.ended, past.by, past.name) == (0.0, 0.0, "", "")


def test_a_run_of_a_newer_format_is_named_and_not_interpreted() -> None:
    begin = JournalEntry("begin", "r", text="train", by="ann", at=5.0, format=FORMAT + 1, writer="9.9")
    past = only([begin, JournalEntry("end", "r", text="done")])
    assert (past.outcome, past.name, past.by, past.actions) == ("unknown", "train", "ann", ())
    assert "9.9" in past.failure


def test_a_journal_whose_beginning_is_gone_is_not_a_failure() -> None:
    assert past_runs([]) == ()
    past = only(
        [JournalEntry("done", "r", gpu=GPU, step="reset", at=5.0), JournalEntry("end", "r", text="done", at=6.0)]
    )
    assert (past.at, past.outcome, past.by) == (5.0, "done", "")


def test_the_newest_are_reported_in_little_room() -> None:
    many = tuple(f"GPU {GPU}: created 1g.5gb at {n}:1" for n in range(7))
    open_one = PastRun("5", 5.0, 0.0, "", "", INTERRUPTED)
    done = [PastRun(str(n), n, n + 1, "agent", "train", "done", actions=many, totals="7 created") for n in (4, 3, 2, 1)]
    found = newest_runs((open_one, *done), 2, 3)
    assert [p.run for p in found] == ["4", "3"]
    assert found[0].actions == (*many[:2], "and 5 more")
    assert found[0].totals == "7 created"
    assert newest_runs(done[:1], 2, 7)[0].actions == many
