"""Requests that add and remove, and totals over several GPUs, as typed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from .conftest import Run, Sim

FILE = """\
version: aliquot/v1
configs:
  day:
    - gpus: all
      mig: {at-least: {2g.10gb: 1}}
"""


def profiles(sim: Sim, gpu: int = 0) -> Counter[str]:
    return Counter(i["profile"] for i in sim.node.show()["gpus"][gpu]["instances"])


@pytest.fixture
def busy(a100: Sim) -> Sim:
    """Create three 1g.5gb (7, 8, 11) on one A100. The first is held."""
    a100.node.set_mode(0, True)
    for start in (0, 1, 4):
        a100.node.create(0, "1g.5gb", start)
    a100.node.hold(0, 7, pid=8812)
    return a100


def test_one_more_beside_what_is_there(busy: Sim, run: Run) -> None:
    planned = run("plan", "--add", "2g.10gb")
    assert planned.code == 10
    assert "keep 3, destroy 0, create 1" in planned.out
    assert "next     aliquot apply --add 2g.10gb" in planned.err
    assert run("apply", "--add", "2g.10gb", "--add", "1g.5gb:2").code == 0
    assert profiles(busy) == {"1g.5gb": 5, "2g.10gb": 1}
    assert [call["call"] for call in busy.writes() if "Destroy" in call["call"]] == []
    assert "  request  current state plus 2g.10gb:1,1g.5gb:2" in run("history", "--limit", "1").out.splitlines()


def test_an_idle_one_goes_first(busy: Sim, run: Run) -> None:
    planned = run("plan", "--remove", "1g.5gb*2", "-o", "json").document
    assert [(a["action"], a["instance"]) for a in planned["actions"]] == [("destroy", 8), ("destroy", 11)]
    assert run("apply", "--remove", "1g.5gb*2").code == 0
    assert profiles(busy) == {"1g.5gb": 1}


def test_a_held_one_goes_only_with_the_policy(busy: Sim, run: Run) -> None:
    refused = run("apply", "--remove", "1g.5gb@0")
    assert refused.code == 20
    assert "blocked[HELD]" in refused.err
    assert "process 8812" in refused.err
    assert run("apply", "--remove", "1g.5gb*3").code == 20
    assert busy.writes() == []
    assert run("apply", "--remove", "1g.5gb@0", "--policy", "force").code == 0
    assert {i["placement"] for i in busy.node.show()["gpus"][0]["instances"]} == {"1:1", "4:1"}


def test_one_for_the_other(busy: Sim, run: Run) -> None:
    assert (
        run("apply", "--add", "4g.20gb", "--remove", "1g.5gb").code == 20
    )  # 4g.20gb starts where the held instance is
    busy.node.release(0, 7)
    assert run("apply", "--add", "4g.20gb", "--remove", "1g.5gb").code == 0
    assert profiles(busy) == {"4g.20gb": 1, "1g.5gb": 2}


def test_what_does_not_fit_says_what_to_remove(busy: Sim, run: Run) -> None:
    refused = run("plan", "--gpu", "0", "--add", "3g.20gb,2g.10gb")
    assert refused.code == 20
    assert refused.err.splitlines()[0] == (
        "blocked[COMPUTE_SLICES]: --add: GPU 0 (NVIDIA A100-SXM4-40GB, 0000:01:00.0) cannot hold "
        "3g.20gb:1,2g.10gb:1,1g.5gb:3: 8 compute slices requested, this GPU has 7; it fits once 1g.5gb:1 is removed"
    )
    step = refused.err.splitlines()[-1].removeprefix("  next     ")
    assert step == "aliquot plan --gpu 0 --add 3g.20gb:1,2g.10gb:1 --remove 1g.5gb:1"
    assert run(*step.split()[1:]).code == 10
    assert busy.writes() == []


def test_what_only_a_held_one_makes_room_for(busy: Sim, run: Run) -> None:
    refused = run("plan", "--add", "7g.40gb")
    assert refused.code == 20
    assert "it fits once 1g.5gb:3 is removed, of which these are held: 1g.5gb at 0:1, process 8812" in refused.err
    assert "next     aliquot plan --add 7g.40gb:1 --remove 1g.5gb:3 --policy wait" in refused.err


def test_what_is_not_there_cannot_be_removed(busy: Sim, run: Run) -> None:
    assert run("plan", "--remove", "3g.20gb").err.splitlines()[0] == (
        "blocked[NO_SUCH_INSTANCE]: --remove: GPU 0 (NVIDIA A100-SXM4-40GB, 0000:01:00.0) holds no 3g.20gb to remove: "
        "there is 1g.5gb:3"
    )
    more = run("plan", "--remove", "1g.5gb*4")
    assert (more.code, "holds 3 x 1g.5gb, not 4, to remove" in more.err) == (20, True)
    unknown = run("plan", "--remove", "1g.6gbb")
    assert unknown.code == 2
    elsewhere = run("plan", "--remove", "1g.99gb")
    assert (elsewhere.code, "no GPU has a profile 1g.99gb" in elsewhere.err) == (2, True)
    assert "did you mean" in run("plan", "--remove", "1g.55gb").err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--add", "1g.5gb", "--mig", "1g.5gb"), "--add and --remove change what is there, --mig replaces it"),
        (("--add", "1g.5gb", "--remove", "1g.5gb"), "1g.5gb is in both --add and --remove"),
        (("--add", "1g.5gb", "-f", "x.yaml"), "not both"),
        (("--add", "1g.5gb", "--mode-only"), "--mode-only"),
        (("--add", "empty"), "name profiles with counts"),
        (("--remove", "1c.3g.20gb@4"), "a placement names a GPU instance"),
        (("--total", "--add", "1g.5gb"), "--total needs --mig"),
        (("--total", "--gpu", "0", "--mig", "disabled"), "name profiles with counts"),
    ],
)
def test_what_makes_no_sense(busy: Sim, run: Run, words: tuple[str, ...], sentence: str) -> None:
    refused = run("plan", *words)
    assert refused.code == 2
    assert sentence in refused.err
    assert busy.writes() == []


def test_a_total_is_shared_out_over_the_gpus(dgx: Sim, run: Run) -> None:
    assert run("apply", "--gpu", "0", "--mig", "1g.5gb*2").code == 0
    request = ("--gpu", "0,1", "--mig", "1g.5gb*9", "--total")
    planned = run("plan", *request)
    assert "keep 2, destroy 0, create 7" in planned.out
    assert run("apply", *request).code == 0
    assert profiles(dgx, 0) + profiles(dgx, 1) == {"1g.5gb": 9}
    assert run("verify", *request).code == 0
    assert run("apply", *request).out == "nothing to do: 9 instances are as requested\n"
    assert run("apply", "--gpu", "0,1", "--mig", "1g.5gb*2").code == 0  # without --total: for each GPU
    assert (profiles(dgx, 0), profiles(dgx, 1)) == ({"1g.5gb": 2}, {"1g.5gb": 2})
    assert run("verify", *request).code == 30
    assert run("plan", "--gpu", "0,1", "--mig", "1g.5gb*15", "--total").code == 20


def test_one_more_goes_where_mig_mode_is_on(dgx: Sim, run: Run) -> None:
    assert run("apply", "--gpu", "1", "--mig", "1g.5gb").code == 0
    assert run("apply", "--add", "1g.5gb*6").code == 0
    assert profiles(dgx, 1) == {"1g.5gb": 7}
    full = run("plan", "--add", "1g.5gb")
    assert full.code == 20
    assert run("apply", "--gpu", "all", "--add", "1g.5gb").code == 0  # a GPU that is named may change its mode
    assert profiles(dgx, 0) == {"1g.5gb": 1}


def test_at_least_in_a_file(busy: Sim, run: Run) -> None:
    Path("x.yaml").write_text(FILE)
    assert run("verify", "-f", "x.yaml").code == 30
    assert run("apply", "-f", "x.yaml").code == 0
    assert profiles(busy) == {"1g.5gb": 3, "2g.10gb": 1}
    assert run("verify", "-f", "x.yaml").code == 0
    assert run("plan", "-f", "x.yaml").code == 0
    Path("x.yaml").write_text(FILE.replace("{2g.10gb: 1}", "{4g.20gb: 1}"))
    refused = run("plan", "-f", "x.yaml")
    assert refused.code == 20
    assert "x.yaml:4:7: GPU 0000:01:00.0 has no room for 4g.20gb:1 beside what is there; it fits once" in refused.err


def test_at_least_that_does_not_fit_is_reported_once_for_equal_gpus(dgx: Sim, run: Run) -> None:
    assert run("apply", "--gpu", "all", "--mig", "1g.5gb*7").code == 0
    Path("x.yaml").write_text(FILE)
    refused = run("plan", "-f", "x.yaml")
    assert refused.code == 20
    first, gpus, then = refused.err.splitlines()
    assert first.endswith(
        f"each of {len(dgx.node.show()['gpus'])} GPUs has no room for 2g.10gb:1 beside what is there; "
        "it fits once 1g.5gb:2 is removed"
    )
    assert gpus.startswith("  GPUs     0000:07:00.0 ")
    assert then == "  next     aliquot plan --gpu 0000:07:00.0 --remove 1g.5gb:2     and so for each of these GPUs"
    assert run("plan", "-f", "x.yaml", "--each").err.count("blocked[PLACEMENT]") == len(gpus.split()) - 1


def test_a_saved_plan_adds_once(busy: Sim, run: Run) -> None:
    assert run("plan", "--add", "2g.10gb", "--out", "plan.json").code == 10
    assert run("apply", "plan.json").code == 0
    assert run("apply", "plan.json").out == "nothing to do: this plan was applied already\n"
    assert profiles(busy) == {"1g.5gb": 3, "2g.10gb": 1}
    assert run("apply", "plan.json", "--add", "1g.5gb").code == 2


def test_what_was_added_is_there_after_a_reboot(busy: Sim, run: Run) -> None:
    busy.node.release(0, 7)
    assert run("apply", "--add", "2g.10gb").code == 0
    busy.node.reboot()
    assert run("restore", "--boot").code == 0
    assert profiles(busy) == {"1g.5gb": 3, "2g.10gb": 1}
