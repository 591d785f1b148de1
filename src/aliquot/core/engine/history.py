"""What a journal tells of the past, for people: who asked for what and when, what was done, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from aliquot.core.engine.ports import FORMAT, Record

CUT_OFF = "cut off"
UNDER_WAY = "under way"
UNKNOWN = "unknown"
_COUNTED = ("destroyed", "created")
_SUMS = {
    "destroyed ": "destroyed",
    "created ": "created",
    "set MIG mode": "MIG mode set",
    "switched virtual functions": "virtual functions switched",
    "switched mixed-size mode": "mixed-size mode switched",
    "switched passthrough": "passthrough switched",
    "reset": "reset",
}
"""How acts begin, and what they are called in sum."""
_ROUNDED_S = 0.05
"""Records round their times, and a file's time lags by a tick of the kernel."""


class Past(msgspec.Struct, frozen=True):
    """One run. ``at`` and ``ended`` are seconds of wall time, 0 where the journal does not say; ``by`` is who asked, ""
    for unknown; ``name`` is the named config or what else the wish was called. ``outcome`` is done, undone, partial,
    refused (it ended before anything was touched), ``cut off`` for one that never ended, ``under way`` for one that
    still runs, ``unknown`` for one of a newer format. ``acts`` are what was done, ``figures`` that in sum
    (``2 destroyed, 1 created, MIG mode set``), ``back`` what of it was taken back; ``why`` is what went wrong.
    """

    run: str
    at: float
    ended: float
    by: str
    name: str
    outcome: str
    gpus: tuple[str, ...] = ()
    acts: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    why: str = ""
    figures: str = ""


def figures(acts: Iterable[str]) -> str:
    """``2 destroyed, 1 created, MIG mode set``, counted on acts in words."""
    done: dict[str, list[str]] = {word: [] for word in _COUNTED}
    for gpu, _, act in (each.partition(": ") for each in acts):
        sums = (word for start, word in _SUMS.items() if act.startswith(start))
        done.setdefault(next(sums, act), []).append(gpu)
    return ", ".join(_in_sum(word, gpus) for word, gpus in done.items() if gpus)


def _in_sum(word: str, gpus: Sequence[str]) -> str:
    many = len(set(gpus))
    return f"{len(gpus)} {word}" if word in _COUNTED else word if many == 1 else f"{word} on {many} GPUs"


def began_since(at: float, since: float) -> bool:
    """Whether a run that began ``at`` can be that of who took the node's lock at ``since``, both by the wall clock of
    one machine. Older journals do not say when (0), and then it can. A clock that is set back in between makes it look
    older: then less is told of it than could be, and nothing wrong.
    """
    return not at or at >= since - _ROUNDED_S


def pasts(records: Iterable[Record], *, running: bool = False, since: float = 0.0) -> tuple[Past, ...]:
    """The runs, the newest first. ``running`` says that somebody is at the node, and ``since`` since when: then the
    last run has no end yet, if it is theirs.
    """
    runs: dict[str, list[Record]] = {}
    for record in records:
        runs.setdefault(record.run, []).append(record)
    every = list(runs.values())
    now = len(every) - 1 if running and every and began_since(every[-1][0].at, since) else None
    return tuple(_past(every[n], n == now) for n in reversed(range(len(every))))


def newest(found: Sequence[Past], most: int, acts: int) -> tuple[Past, ...]:
    """The first ``most`` that have ended, to be told where there is little room: of many acts ``acts``, and how many
    more there were.
    """
    ended = [past for past in found if past.outcome not in (UNDER_WAY, CUT_OFF)]
    return tuple(
        msgspec.structs.replace(past, acts=_few(past.acts, acts), back=_few(past.back, acts)) for past in ended[:most]
    )


def _few(acts: tuple[str, ...], most: int) -> tuple[str, ...]:
    return acts if len(acts) <= most else (*acts[: most - 1], f"and {len(acts) - most + 1} more")


def _past(records: Sequence[Record], running: bool) -> Past:
    begin = next((r for r in records if r.kind == "begin"), records[0])
    if begin.format > FORMAT:
        why = f"Aliquot {begin.writer} recorded it in format {begin.format}, which this version does not read"
        return Past(begin.run, begin.at, 0.0, begin.by, begin.text, UNKNOWN, why=why)
    end = next((r for r in records if r.kind == "end"), None)
    turn = next((n for n, r in enumerate(records) if r.kind == "undo"), len(records))
    forth, back = records[:turn], records[turn:]
    failure = next((r.text for r in records if r.kind == "undo"), "") or next(
        (r.text for r in forth if r.kind == "failed"), ""
    )
    acts, taken_back = _acts(forth), _acts(back)
    untouched = (
        end is not None and end.text in ("undone", "stopped") and not any(r.kind in ("intent", "done") for r in records)
    )
    return Past(
        run=begin.run,
        at=begin.at,
        ended=end.at if end else 0.0,
        by=begin.by,
        name=begin.text,
        outcome="refused" if untouched else end.text if end else UNDER_WAY if running else CUT_OFF,
        gpus=tuple(dict.fromkeys(r.gpu for r in records if r.gpu)),
        acts=acts,
        back=taken_back,
        why=failure or ("" if end or running else _torn(records)),
        figures=figures(acts),
    )


def _torn(records: Sequence[Record]) -> str:
    """The act that a run without an end was at."""
    last = records[-1]
    if last.kind == "intent":
        return f"it ended while {_words(last.step, doing=True)} on GPU {last.gpu}: nobody knows whether that happened"
    return "it ended before all was done"


def _acts(records: Sequence[Record]) -> tuple[str, ...]:
    """What succeeded. Compute instances come and go with their GPU instance, and are told only where they alone did."""
    done = [r for r in records if r.kind == "done"]
    whole = {r.gpu for r in done if " gi " in r.step}
    return tuple(f"GPU {r.gpu}: {_words(r.step)}" for r in done if not (" ci " in r.step and r.gpu in whole))


def _words(step: str, *, doing: bool = False) -> str:
    """A step of the engine as people say it: ``created 1g.5gb at 0:1``, or (``doing``) ``creating 1g.5gb at 0:1``."""
    verb, _, rest = step.partition(" ")
    words = rest.split(" ")
    match verb:
        case "create" | "destroy":
            said = verb.rstrip("e") + ("ing" if doing else "ed")
            return f"{said} {_thing(words)}"
        case "mode":
            return f"{'setting' if doing else 'set'} MIG mode to {rest}"
        case "functions":
            count = "off" if rest == "0" else f"on ({rest})"
            return f"{'switching' if doing else 'switched'} virtual functions {count}"
        case "mixed-size":
            return f"{'switching' if doing else 'switched'} mixed-size mode {rest}"
        case "passthrough":
            what = f"virtual function {words[1]}" if len(words) > 1 else "the whole GPU"
            return f"{'switching' if doing else 'switched'} passthrough of {what} {words[0]}"
        case "reset":
            return "resetting it" if doing else "reset"
        case _:
            return step  # of a version that is newer, or older: better as it is than not at all


def _thing(words: Sequence[str]) -> str:
    """``gi 7 1g.5gb 0:1``, ``ci 7/0``, ``vgpu NVIDIA A2-4Q 0000:01:00.4 UUID``."""
    match words:
        case ("gi", *_, profile, place):
            return f"{profile} at {place}"
        case ("ci", where, *_):
            return f"a compute instance in instance {where.partition('/')[0]}"
        case ("vgpu", *name, function, _):
            return f"vGPU {' '.join(name)} on {function}"
    return " ".join(words)
