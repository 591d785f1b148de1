"""Equal GPUs are drawn once. ``--each`` draws them all, and JSON contains them all."""

from __future__ import annotations

from .conftest import Run, Sim


def test_show_draws_equal_gpus_once_and_names_each(dgx: Sim, run: Run) -> None:
    text = run("show").out
    assert text.count("MIG disabled") == 1
    assert "GPUs 0-7: the same  A100-SXM4-40GB" in text
    for gpu in dgx.node.show()["gpus"]:
        assert f"{gpu['pci']}  {gpu['uuid']}" in text
    assert run("show", "--each").out.count("MIG disabled") == 8
    assert len(run("show", "-o", "json").document["gpus"]) == 8


def test_a_gpu_that_differs_is_drawn_by_itself(dgx: Sim, run: Run) -> None:
    made = []
    for index in (1, 2, 3):
        dgx.node.set_mode(index, True)
        made.append(dgx.node.create(index, "3g.20gb", 4))
    dgx.node.hold(3, made[-1], pid=4711)
    text = run("show").out
    assert "GPUs 0, 4-7: the same" in text
    assert "GPUs 1-2: the same" in text
    assert "\nGPU 3  0000:4e:00.0" in text
    assert text.count("held by process 4711") == 1
    assert run("show", "--each").out.count("MIG-") > text.count("MIG-")


def test_profiles_have_one_table_for_equal_gpus(dgx: Sim, run: Run) -> None:
    text = run("profiles").out
    assert text.count("7g.40gb") == 1
    assert text.startswith("GPUs 0-7: the same")
    assert run("profiles", "--each").out.count("7g.40gb") == 8


def test_a_plan_draws_equal_changes_once(dgx: Sim, run: Run) -> None:
    dgx.node.set_mode(5, True)
    words = ("plan", "--gpu", "0-7", "--mig", "3g.20gb")
    text = run(*words).out
    assert "GPUs 0-4, 6-7: the same" in text
    assert "\nGPU 5  0000:90:00.0" in text
    assert "create 8" in text
    assert text.count("3g.20gb at 4:4") == 2
    assert run(*words, "--each").out.count("reset       the GPU") == 7
    assert len(run(*words, "-o", "json").document["actions"]) == 8 + 7 + 7


def test_explain_prints_the_best_gpu_in_full_and_a_line_for_the_rest(dgx: Sim, run: Run) -> None:
    dgx.node.set_mode(6, True)
    text = run("explain", "3g.20gb").out
    assert text.startswith("GPU 6  0000:b7:00.0  A100-SXM4-40GB: 3g.20gb fits now")
    assert text.splitlines()[-1] == (
        "GPUs 0-5, 7: the same  A100-SXM4-40GB: 3g.20gb does not fit yet: MIG mode is disabled"
    )
    assert text.count("the cheapest way") == 0
    assert run("explain", "3g.20gb", "--each").out.count("the cheapest way") == 7
    assert len(run("explain", "3g.20gb", "-o", "json").document["answers"]) == 8


def test_gpus_of_two_products_are_two_groups(mixed: Sim, run: Run) -> None:
    assert "the same" not in run("show").out


def test_explain_prefers_the_gpu_that_loses_least(dgx: Sim, run: Run) -> None:
    for index, count in ((2, 2), (3, 1)):
        dgx.node.set_mode(index, True)
        for start in (0, 4)[:count]:
            dgx.node.create(index, "3g.20gb", start)
    text = run("explain", "7g.40gb", "--gpu", "2-3").out
    assert text.startswith("GPU 3 ")
    assert "\nGPU 2  0000:47:00.0" in text


def test_explain_names_the_idle_instances_that_it_proposes_to_destroy(dgx: Sim, run: Run) -> None:
    dgx.node.set_mode(0, True)
    held, idle = (dgx.node.create(0, "1g.5gb", start) for start in (0, 4))
    dgx.node.hold(0, held, pid=8812)
    (answer,) = run("explain", "3g.20gb", "--gpu", "0", "-o", "json").document["answers"]
    assert [a["instance"] for a in answer["plan"]["actions"] if a["action"] == "destroy"] == [idle]
    assert answer["sentence"].endswith("); it is enough to destroy idle instances: 1g.5gb at 4:1")
