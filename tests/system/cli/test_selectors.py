"""``--gpu`` accepts the same words on every command that selects GPUs, and so do positional arguments."""

from __future__ import annotations

import shlex

import pytest

from .conftest import Host, Run, Sim

_READ = (("show", "gpus"), ("profiles", "gpus"), ("vgpu types", "gpus"), ("vgpu list", "gpus"))


@pytest.mark.parametrize(("verb", "key"), [*_READ, ("passthrough list", "gpus"), ("explain 1g.5gb", "answers")])
@pytest.mark.parametrize("typed", ["--gpu 0-1,3", "--gpu 3 --gpu 0,1", "--gpu=0 --gpu 1 --gpu {pci}"])
def test_a_command_reads_the_gpus_that_are_named(dgx: Sim, run: Run, verb: str, key: str, typed: str) -> None:
    pci = run("show", "3", "-o", "json").document["gpus"][0]["pci"]
    result = run(*shlex.split(f"{verb} {typed.format(pci=pci)} -o json"))
    assert len(result.document[key]) == 3
    assert (result.document[key][2].get("pci") or result.document[key][2]["gpu"]) == pci


@pytest.mark.parametrize(("verb", "key"), _READ)
def test_words_without_an_option_mean_the_same(dgx: Sim, run: Run, verb: str, key: str) -> None:
    assert len(run(*verb.split(), "0-1", "a100-sxm4-40gb", "-o", "json").document[key]) == 8
    assert len(run(*verb.split(), "0-1", "--gpu", "5", "-o", "json").document[key]) == 3


@pytest.mark.parametrize("verb", ["show", "profiles", "usage", "vgpu types", "vgpu list", "explain 1g.5gb"])
def test_a_range_beyond_the_node_is_refused(dgx: Sim, run: Run, verb: str) -> None:
    result = run(*verb.split(), "--gpu", "6-9")
    assert (result.code, "GPU '8' not found on this node" in result.err) == (20, True)


def test_usage_reads_the_gpus_that_are_named(dgx: Sim, run: Run) -> None:
    found = run("usage", "--gpu", "0-1", "-o", "json").document["usage"]
    assert len({each["gpu"] for each in found}) == 2


def test_a_verb_for_one_gpu_refuses_several(dgx: Sim, run: Run) -> None:
    result = run("passthrough", "check", "0-1")
    assert (result.code, "names 2 GPUs" in result.err) == (2, True)


def test_virtual_functions_of_several_gpus_are_enabled_at_once(host: Host, run: Run) -> None:
    host("a2:vfio*2")
    result = run("vgpu", "enable", "--gpu", "0-1", "--dry-run", "-o", "json")
    assert [action["gpu"][5:] for action in result.document["actions"]] == ["01:00.0", "02:00.0"]
    assert run("vgpu", "enable", "0-1", "--yes").code == 0
    assert all(gpu["functions"] for gpu in run("vgpu", "list", "-o", "json").document["gpus"])
    assert run("vgpu", "disable", "0,1", "--yes").code == 0
    nothing = run("vgpu", "enable")
    assert (nothing.code, "name at least one GPU" in nothing.err) == (2, True)


def test_several_devices_are_passed_through_at_once(host: Host, run: Run) -> None:
    host("a2:vfio*2")
    assert run("passthrough", "enable", "--gpu", "a2", "--yes").code == 0
    assert [g["passthrough"] for g in run("passthrough", "list", "-o", "json").document["gpus"]] == [True, True]
    assert run("passthrough", "disable", "0-1", "--yes").code == 0
    assert [g["passthrough"] for g in run("passthrough", "list", "-o", "json").document["gpus"]] == [False, False]
