"""Hints that a smaller profile would suffice: the condition, the profile, and the text."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.core.model.usage import Usage, coarsen
from aliquot.core.planner.rightsizing import MIN_WATCHED_S, RightsizingHint, find_smaller, hints
from aliquot.core.rendering import usage_text as words
from support.factory import inventory, with_instances

replace = msgspec.structs.replace
NOW = 2_000_000.0
A100 = catalog.family("a100-40gb")
DAY_AND_MORE = 26 * 3600.0


def seen(name: str, peak: int | None, *, watched: float = DAY_AND_MORE, idle: float | None = None) -> Usage:
    profile = A100.by_name[name]
    return Usage("0000:07:00.0", 2, name, 10, profile.memory_mib, None, "", idle, peak, NOW - watched)


def found(usage: Usage) -> RightsizingHint | None:
    return find_smaller(usage, A100.by_name[usage.profile], A100, NOW)


@pytest.mark.parametrize(
    ("name", "peak", "expected"),
    [
        ("3g.20gb", 3174, "1g.5gb"),
        ("3g.20gb", 4700, "2g.10gb"),  # 97 % of a 1g.5gb: too close to its limit
        ("3g.20gb", 9000, "2g.10gb"),  # as much memory as 1g.10gb, and more compute
        ("3g.20gb", 12000, None),
        ("4g.20gb", 3174, "1g.5gb"),
        ("7g.40gb", 15000, "4g.20gb"),
        ("7g.40gb", 30000, None),
        ("2g.10gb", 3000, "1g.5gb"),
        ("1g.10gb", 3000, "1g.5gb"),
        ("1g.5gb", 10, None),
        ("1g.5gb+me", 10, None),
    ],
)
def test_the_smallest_that_would_have_held_it(name: str, peak: int, expected: str | None) -> None:
    hint = found(seen(name, peak))
    assert (hint.profile if hint else None) == expected


def test_never_without_knowing() -> None:
    assert found(seen("3g.20gb", None)) is None, "the used memory is unknown"
    assert found(seen("3g.20gb", 100, watched=MIN_WATCHED_S - 1)) is None
    assert found(seen("3g.20gb", 100, watched=MIN_WATCHED_S)) is not None
    assert found(replace(seen("3g.20gb", 100), memory_total_mib=None)) is None
    assert found(replace(seen("3g.20gb", 100), watched_since=0.0)) is None, "nobody watches"


def test_never_where_no_holder_was_seen() -> None:
    usage = seen("3g.20gb", 13)
    assert found(replace(usage, idle_since=usage.watched_since)) is None
    assert found(replace(usage, idle_since=usage.watched_since + 60)) is not None


def test_never_with_fewer_multiprocessors_than_were_seen_busy() -> None:
    usage = seen("3g.20gb", 3174)
    assert found(replace(usage, peak_compute=0.9)) is None
    half = found(replace(usage, peak_compute=0.5))
    assert half is not None
    assert half.profile == "2g.10gb"
    third = found(replace(usage, peak_compute=0.33))
    assert third is not None
    assert third.profile == "1g.5gb"


def test_what_is_reported() -> None:
    hint = found(seen("3g.20gb", 3174))
    assert hint is not None
    output = "used at most 3.1 of 19.6 GiB in 26 h; 1g.5gb (4.8 GiB) would hold that; compute: not measured"
    assert words.hint(hint) == f"{output}; it has no video decoder"
    measured = found(replace(seen("3g.20gb", 9000), peak_compute=0.3))
    assert measured is not None
    assert "compute: at most 30 % busy in a sample, 2g.10gb has 2 of 3 slices" in words.hint(measured)
    assert "no video decoder" not in words.hint(measured)


@pytest.mark.parametrize("promise", ["fast", "perform", "enough", "slow", "speed"])
def test_nothing_is_promised(promise: str) -> None:
    for name in ("3g.20gb", "4g.20gb", "7g.40gb", "2g.10gb"):
        hint = found(seen(name, 1000))
        assert hint is not None
        assert promise not in words.hint(hint)


def test_hints_of_a_node() -> None:
    node = with_instances(inventory("a100-sxm4-40gb*2", enabled=True), 0, "3g.20gb@0", "1g.5gb@4")
    gpu = node.gpus[0]
    first, second = gpu.instances
    usage = tuple(
        Usage(gpu.pci, i.id, i.profile, 1, A100.by_name[i.profile].memory_mib, peak_mib=900, watched_since=NOW - 1e5)
        for i in (first, second)
    )
    unrelated = replace(usage[0], gpu="0000:ff:00.0")
    gone = replace(usage[0], instance=13)
    (hint,) = hints(node, (*usage, unrelated, gone), NOW)
    assert (hint.gpu, hint.instance, hint.now, hint.profile) == (gpu.pci, first.id, "3g.20gb", "1g.5gb")


@pytest.mark.parametrize("name", catalog.family_names())
def test_every_family(name: str) -> None:
    # The hinted profile is smaller, holds the peak, and keeps the purpose of the original one.
    family = catalog.family(name)
    for profile in family.profiles:
        for peak in range(0, profile.memory_mib or 0, 1024):
            usage = Usage("x", 1, profile.name, 1, profile.memory_mib, peak_mib=peak, watched_since=NOW - 1e6)
            hint = find_smaller(usage, profile, family, NOW)
            if hint is None:
                continue
            other = family.by_name[hint.profile]
            assert peak < (other.memory_mib or 0) < (profile.memory_mib or 0)
            assert other.size < profile.size
            assert other.compute_slices <= profile.compute_slices
            assert other.attributes == profile.attributes


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-5, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "59 min"), (26 * 3600, "26 h"), (2 * 86400, "2 d")],
)
def test_spans(seconds: float, expected: str) -> None:
    assert words.span(seconds) == expected


def test_words_and_bars() -> None:
    usage = Usage("x", 1, "3g.20gb", 3174, 20096, 0.374, "gpm")
    assert words.memory(usage) == "3.1 of 19.6 GiB"
    assert words.bar(usage) == "[##..........]"
    assert words.bar(replace(usage, memory_used_mib=1)) == "[#...........]"
    assert words.bar(replace(usage, memory_used_mib=0)) == "[............]"
    assert words.bar(replace(usage, memory_used_mib=99999)) == "[############]"
    assert words.compute(usage) == "37 % busy"
    assert words.compute(replace(usage, source="nvml")) == "37 % of the time (nvml)"
    assert words.compute(replace(usage, compute=None)) == "not measured"
    assert words.compute(replace(usage, compute=0.001)) == "<1 % busy"
    bare = Usage("x")
    assert (words.memory(bare), words.bar(bare), words.idle(bare, NOW)) == ("not reported", "", "")
    watched = replace(usage, watched_since=NOW - 1e5)
    assert words.idle(watched, NOW) == "held"
    assert words.idle(replace(watched, idle_since=NOW - 6.5 * 3600), NOW) == "idle for 6 h"
    assert words.idle(replace(watched, idle_since=NOW - 5), NOW) == "idle"


def test_what_is_reported_roughly_is_never_less_and_never_older() -> None:
    usage = Usage("x", 1, "3g.20gb", 3174, 20096, 0.4, "gpm", 1020.5, 9000, 500.2, 0.3)
    (rough,) = coarsen((usage,))
    assert (rough.memory_used_mib, rough.peak_mib, rough.peak_compute) == (3 * 1256, 8 * 1256, 0.5)
    assert (rough.idle_since, rough.watched_since, rough.compute, rough.source) == (1080, 540, None, "")
    assert coarsen((rough,)) == (rough,), "an idle node's does not change"
    assert coarsen((Usage("x"),)) == (Usage("x"),)
