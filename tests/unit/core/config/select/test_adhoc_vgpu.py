"""vGPUs and passthrough typed on the command line, and the request printed as a command."""

from __future__ import annotations

import shlex
from collections import Counter

import pytest

from aliquot.cli.command_table import ROOT
from aliquot.cli.framework import desired_args
from aliquot.cli.framework.parser import Args, arguments, find
from aliquot.core.config.select.command_line import adhoc
from aliquot.errors import ConfigError, UsageError
from unit.core.config.vgpu_nodes import changed, hosting, node

NODE = node("A2", "T4", "A2")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVIDIA A2-4Q*4", {"NVIDIA A2-4Q": 4}),
        ("A2-4Q:2, A2-4C", {"NVIDIA A2-4Q": 2, "NVIDIA A2-4C": 1}),
        (" NVIDIA  A2-4Q : 3 ,A2-4A*1", {"NVIDIA A2-4Q": 3, "NVIDIA A2-4A": 1}),
        ("id:746:3,nvidia-754", {"NVIDIA A2-4Q": 3, "NVIDIA A2-4C": 1}),
        ("id:746*3, nvidia-754 : 1", {"NVIDIA A2-4Q": 3, "NVIDIA A2-4C": 1}),
        ("none", {}),
    ],
)
def test_types(text: str, expected: dict[str, int]) -> None:
    wanted = adhoc(["0"], [], NODE, vgpu=[text])
    assert wanted.failures == ()
    (one,) = wanted.gpus
    assert Counter(v.type for v in one.vgpus or ()) == expected
    assert (one.passthrough, one.mixed_size) == (None, None)


def test_mixed_size() -> None:
    (one,) = adhoc(["0"], [], NODE, vgpu=["A2-4Q,A2-8Q"], mixed_size=True).gpus
    assert (one.mixed_size, len(one.vgpus or ())) == (True, 2)
    assert [f.rule for f in adhoc(["0"], [], NODE, vgpu=["A2-4Q,A2-8Q"]).failures] == ["EQUAL_SIZE"]


def test_mixed_size_mode_that_is_on_stays_and_holds_what_it_can() -> None:
    # The user need not request the current mode. The desired state nevertheless contains the mode, because a reboot
    # ends it.
    inventory = changed(
        changed(hosting(node("A2", "A2", "A2"), enabled=True), 0, virtual_mixed_size=True), 2, virtual_mixed_size=True
    )
    (one,) = adhoc(["0"], [], inventory, vgpu=["A2-4Q,A2-8Q"]).gpus
    assert (one.mixed_size, len(one.vgpus or ())) == (True, 2)
    (same,) = adhoc(["0"], [], inventory, vgpu=["A2-4Q:2"]).gpus
    assert same.mixed_size is None
    (fault,) = adhoc(["0-2"], [], inventory, vgpu=["A2-4Q,A2-8Q"]).failures
    assert (fault.rule, fault.pci) == ("EQUAL_SIZE", inventory.gpus[1].pci)
    assert [f.rule for f in adhoc(["0"], [], inventory, vgpu=["A2-4Q,A2-8Q"], mixed_size=False).failures] == [
        "EQUAL_SIZE"
    ]


@pytest.mark.parametrize("on", [True, False])
def test_passthrough(on: bool) -> None:
    wanted = adhoc(["0-1"], [], NODE, passthrough=on)
    assert [(w.passthrough, w.vgpus, w.instances) for w in wanted.gpus] == [(on, None, None)] * 2


def test_pairs() -> None:
    first, second = adhoc(["0", "1"], [], NODE, vgpu=["A2-4Q", "T4-8Q:2"]).gpus
    assert [len(w.vgpus or ()) for w in (first, second)] == [1, 2]
    with pytest.raises(ConfigError, match="2 times --vgpu for 3 times --gpu"):
        adhoc(["0", "1", "2"], [], NODE, vgpu=["A2-4Q", "T4-8Q"])


def test_the_only_gpu_need_not_be_named() -> None:
    assert adhoc([], [], node("T4"), vgpu=["T4-8Q"]).gpus[0].pci == "0000:10:00.0"
    assert adhoc([], [], node("T4"), passthrough=True).gpus[0].passthrough is True
    with pytest.raises(ConfigError, match="3 GPUs that can have vGPUs: name one"):
        adhoc([], [], NODE, vgpu=["T4-8Q"])
    with pytest.raises(ConfigError, match="3 GPUs that can be passed through: name one"):
        adhoc([], [], NODE, passthrough=True)


def test_one_share_at_a_time() -> None:
    with pytest.raises(ConfigError, match="give one of --mig and --vgpu"):
        adhoc(["0"], ["1g.5gb"], NODE, vgpu=["A2-4Q"])


def test_faults_carry_the_column() -> None:
    with pytest.raises(ConfigError, match="--vgpu has 3 errors") as caught:
        adhoc(["0"], [], NODE, vgpu=["A2-4Q, A2-4C*65,,A2-4A:x"])
    assert caught.value.details == (
        "--vgpu column 8: the count of 'A2-4C' must be a whole number from 1 to 64",
        "--vgpu column 17: a vGPU type is missing (expected for example A2-4Q:4, or none)",
        "--vgpu column 18: the count of 'A2-4A' must be a whole number from 1 to 64",
    )
    for text, answer in (
        ("746", "746 is a number: write id:746, or the type's name"),
        ("id:", "no GPU has a vGPU type id:"),
        ("nvidia-x", "no GPU has a vGPU type nvidia-x"),
        ("id:9746", "no GPU has a vGPU type id:9746"),
    ):
        with pytest.raises(ConfigError) as caught:
            adhoc(["0"], [], NODE, vgpu=[text])
        assert caught.value.details[0].startswith(f"--vgpu column 1: {answer}")
    with pytest.raises(ConfigError) as caught:
        adhoc(["0"], [], NODE, vgpu=["A2-4Q,A2-4Z"])
    assert caught.value.details[0].startswith("--vgpu column 7: no GPU has a vGPU type A2-4Z (did you mean A2-4Q")


def test_what_blocks_here() -> None:
    wrong = adhoc(["1"], [], NODE, vgpu=["A2-4Q"]).failures[0]
    assert (wrong.rule, wrong.message.startswith("--vgpu column 1: GPU 1 (Tesla T4")) == ("WRONG_CARD", True)
    assert [f.rule for f in adhoc(["7"], [], NODE, passthrough=True).failures] == ["NO_SUCH_GPU"]
    assert [f.rule for f in adhoc(["0", "0"], [], NODE, vgpu=["A2-4Q", "A2-8Q"]).failures] == ["OVERLAP"]


def test_the_address_of_a_virtual_function() -> None:
    # The error names the GPU of the virtual function and the command to type.
    inventory = hosting(NODE)
    typed = {"vgpu": ["NVIDIA A2-4Q:2,A2-8Q"], "mixed_size": True}, {"passthrough": True}, {"passthrough": False}
    steps = (
        "aliquot plan --gpu 0000:10:00.0 --vgpu 'NVIDIA A2-4Q:2,A2-8Q:1' --mixed-size",
        "aliquot passthrough enable 0000:10:00.5",
        "aliquot passthrough disable 0000:10:00.5",
    )
    for wanted, step in zip(typed, steps, strict=True):
        (fault,) = adhoc(["10:00.5"], [], inventory, **wanted).failures  # type: ignore[arg-type]
        assert (fault.rule, fault.next_step) == ("NO_SUCH_GPU", step)
        assert "0000:10:00.5 is virtual function 1 of GPU 0 (NVIDIA A2" in fault.message
    (fault,) = adhoc(["10:00.5"], ["1g.5gb"], inventory).failures
    assert fault.next_step == "aliquot show 0000:10:00.0"


def parsed(*words: str) -> Args:
    return arguments(find(ROOT, words))


@pytest.mark.parametrize(
    "words",
    [
        ["--gpu", "0", "--vgpu", "NVIDIA A2-4Q*4"],
        ["--gpu", "0", "--gpu", "1", "--vgpu", "NVIDIA A2-4Q:2,A2-4C", "--vgpu", "T4-8Q"],
        ["--gpu", "0", "--vgpu", "A2-4Q,A2-8Q", "--mixed-size"],
        ["--gpu", "0,1", "--passthrough", "on"],
        ["--gpu", "all", "--passthrough", "off"],
        ["--gpu", "0", "--vgpu", "none"],
    ],
)
def test_the_printed_command_asks_for_the_same(words: list[str]) -> None:
    args = parsed("plan", *words)
    assert desired_args.config_from_args(args) is None
    printed = desired_args.command_line(args, "apply")
    assert printed is not None
    again = parsed(*shlex.split(printed)[1:])
    assert desired_args.read(again, desired_args.config_from_args(again), NODE) == desired_args.read(args, None, NODE)


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["--gpu", "0"], "--gpu needs --mig, --vgpu or --passthrough"),
        (["--gpu", "0", "--mig", "1g.5gb", "--vgpu", "A2-4Q"], "give one of --mig and --vgpu"),
        (["--gpu", "0", "--vgpu", "A2-4Q", "--passthrough", "on"], "give one of --vgpu and --passthrough"),
        (["--gpu", "0", "--mig", "1g.5gb", "--mixed-size"], "needs --vgpu"),
        (["--mixed-size"], "needs --vgpu"),
        (["-f", "x", "--vgpu", "A2-4Q"], "not both"),
        (["-f", "x", "--passthrough", "on"], "not both"),
        (["-f", "x", "--mixed-size"], "not both"),
        (["--gpu", "0", "--passthrough", "yes"], "invalid choice: 'yes'"),
        ([], "no desired state"),
    ],
)
def test_a_command_line_that_states_no_request_or_two(words: list[str], output: str) -> None:
    with pytest.raises(UsageError, match=output):
        desired_args.config_from_args(parsed("plan", *words))


def test_a_saved_plan_takes_no_request_beside_it() -> None:
    for words in (["--vgpu", "A2-4Q"], ["--passthrough", "on"], ["--mixed-size"], ["-c", "x"]):
        assert desired_args.has_desired(parsed("apply", "plan.json", *words))
    assert not desired_args.has_desired(parsed("apply", "plan.json"))
