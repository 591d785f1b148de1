"""Requests typed on the command line."""

from __future__ import annotations

import pytest

from aliquot.core.config.select.command_line import adhoc
from aliquot.core.config.select.instance_changes import add_and_remove
from aliquot.core.model.geometry import geometry_text
from aliquot.errors import ConfigError
from support.factory import inventory
from unit.core.config.helpers import counts

NODE = inventory("a100-sxm4-40gb*2", "tesla-t4")


def test_the_example_of_the_manual() -> None:
    wanted = adhoc(["0"], ["3g.20gb,id:19,1g.5gb@6"], NODE)
    assert wanted.failures == ()
    (request,) = wanted.gpus
    assert [(i.name, i.start) for i in request.instances or ()] == [("3g.20gb", None), ("1g.5gb", None), ("1g.5gb", 6)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1g.5gb*7", {"1g.5gb": 7}),
        ("3g.20gb:1, 2g.10gb:1,1g.5gb:2", {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}),
        ("id:19*2,id:9", {"1g.5gb": 2, "3g.20gb": 1}),
        ("1c.3g.20gb*2", {"3g.20gb": 1}),
        ("1g.5gb+me,1g.5gb", {"1g.5gb+me": 1, "1g.5gb": 1}),
        ("empty", {}),
    ],
)
def test_requests(text: str, expected: dict[str, int]) -> None:
    (request,) = adhoc(["1"], [text], NODE).gpus
    assert request.mig
    assert counts(request) == expected


def test_a_printed_geometry_is_a_request() -> None:
    (request,) = adhoc(["0"], ["3g.20gb,1g.5gb*4"], NODE).gpus
    again = adhoc(["0"], [geometry_text(counts(request))], NODE)
    assert again.gpus == (request,)


def test_disabled() -> None:
    (request,) = adhoc(["0"], ["disabled"], NODE).gpus
    assert (request.mig, request.instances) == (False, ())


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ("0-1", [0, 1]), ("0,1", [0, 1]), ("all", [0, 1]), ("0000:0f:00.0", [1]), ("0F:00.0", [1]),
        ("GPU-00000001-0000-4000-8000-00000000000F", [1]), ("a100-sxm4-40gb", [0, 1]), ("0,0000:0f:00.0", [0, 1]),
        ("NVIDIA A100-SXM4-40GB", [0, 1]),
    ],
)  # fmt: skip
def test_gpus(gpu: str, expected: list[int]) -> None:
    wanted = adhoc([gpu], ["1g.5gb"], NODE)
    assert wanted.failures == ()
    assert [w.pci for w in wanted.gpus] == [NODE.gpus[n].pci for n in expected]


def test_pairs_and_one_for_all() -> None:
    first, second = adhoc(["0", "1"], ["1g.5gb", "2g.10gb"], NODE).gpus
    assert (counts(first), counts(second)) == ({"1g.5gb": 1}, {"2g.10gb": 1})
    first, second = adhoc(["0", "1"], ["1g.5gb"], NODE).gpus
    assert counts(first) == counts(second)
    with pytest.raises(ConfigError, match="2 times --mig for 3 times --gpu"):
        adhoc(["0", "1", "2"], ["1g.5gb", "2g.10gb"], NODE)


def test_the_only_capable_gpu_need_not_be_named() -> None:
    (request,) = adhoc([], ["1g.6gb"], inventory("tesla-t4", "a30")).gpus
    assert request.pci == "0000:0f:00.0"
    with pytest.raises(ConfigError, match="name one with --gpu"):
        adhoc([], ["1g.5gb"], NODE)
    with pytest.raises(ConfigError, match="nothing is requested"):
        adhoc(["0"], [], NODE)


def test_a_change_without_a_gpu_in_mig_mode() -> None:
    with pytest.raises(ConfigError, match="none of the 2 GPUs that can be partitioned is in MIG mode") as caught:
        add_and_remove([], ["1g.5gb"], [], NODE)
    assert caught.value.next_step == "aliquot plan --gpu 0 --add 1g.5gb"


def test_faults_carry_the_column() -> None:
    with pytest.raises(ConfigError, match="--mig has 3 errors") as caught:
        adhoc(["0"], ["3g.20gb, 1g.5gbb,2g.10gb*0,1g.5gb@x"], NODE)
    assert [line.split(":")[0].split()[-1] for line in caught.value.details] == ["10", "18", "28"]
    assert all(line.startswith("--mig column") for line in caught.value.details)
    assert "did you mean 1g.5gb" in caught.value.details[0]
    with pytest.raises(ConfigError) as caught:
        adhoc(["0"], ["3g.20gb,9g.5gb"], NODE)
    assert caught.value.details[0].startswith("--mig column 9: no GPU has a profile 9g.5gb")


def test_similar_names_are_those_of_the_selected_gpus() -> None:
    node = inventory("a30", "h100-80gb-hbm3", "tesla-t4")
    for gpu, similar in (("0", "1g.6gb"), ("1", "1g.10gb")):
        with pytest.raises(ConfigError) as requested:
            adhoc([gpu], ["1g.7gbb"], node)
        with pytest.raises(ConfigError) as added:
            add_and_remove([gpu], ["1g.7gbb"], [], node)
        have = {p.name for p in node.family(node.gpus[int(gpu)]).profiles}
        for error in (requested.value, added.value):
            hint = error.details[0].partition("did you mean ")[2]
            assert similar in hint
            assert set(hint.rstrip("?)").split(" or ")) <= have
    with pytest.raises(ConfigError) as caught:
        adhoc(["2"], ["1g.6gbb"], node)
    assert "did you mean" not in caught.value.details[0], "that GPU has no MIG"


def test_attributes_with_commas_stay_together() -> None:
    with pytest.raises(ConfigError) as caught:
        adhoc(["0"], ["1g.5gb+me,gfx,2g.10gb"], NODE)
    assert len(caught.value.details) == 1
    assert "1g.5gb+me,gfx" in caught.value.details[0]


@pytest.mark.parametrize("gpu", ["foo", "", "3-1", "a30"])
def test_gpu_that_means_nothing(gpu: str) -> None:
    with pytest.raises(ConfigError, match="is not an index, PCI address"):
        adhoc([gpu], ["1g.5gb"], NODE)


def test_what_blocks_here() -> None:
    assert [f.rule for f in adhoc(["7"], ["1g.5gb"], NODE).failures] == ["NO_SUCH_GPU"]
    assert [f.rule for f in adhoc(["2"], ["1g.5gb"], NODE).failures] == ["NOT_CAPABLE"]
    assert [f.rule for f in adhoc(["tesla-t4"], ["1g.5gb"], NODE).failures] == ["NOT_CAPABLE"]
    assert [f.rule for f in adhoc(["0"], ["1g.6gb"], NODE).failures] == ["UNKNOWN_PROFILE"]
    assert [f.rule for f in adhoc(["0", "0"], ["1g.5gb", "2g.10gb"], NODE).failures] == ["OVERLAP"]
    assert adhoc(["0"], ["1g.6gb"], NODE).failures[0].message.startswith("--mig column 1: GPU 0 (NVIDIA A100")
