"""Choice of a container's devices: any free one of a profile, or one by name. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from shlex import quote

from aliquot.containers.runtime.errors import BareIndexError, NoFreeDeviceError
from aliquot.containers.runtime.models import ContainerDevice
from aliquot.core.config.text.node_reader import ProfileNames, catalog_names, did_you_mean
from aliquot.core.model.inventory import Holder
from aliquot.core.model.profile import ProfileName
from aliquot.errors import UsageError

Busy = Mapping[str, Sequence[Holder]]
"""Holders by device UUID."""

_UUID = re.compile(r"(MIG|GPU)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_OLD_UUID = re.compile(r"MIG-GPU-[0-9a-f-]{36}/\d+/\d+", re.IGNORECASE)
_INDEX = re.compile(r"\d+:\d+")
_BARE = re.compile(r"\d+")
_PCI = re.compile(r"([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_TIMES = re.compile(r"(.+)\*(\d{1,3})")


def parse_requests(words: Sequence[str], profiles: ProfileNames = catalog_names) -> tuple[str, ...]:
    """Return the requested devices, one word each: ``1g.5gb*2`` is two. Raises UsageError for an invalid word, with
    similar names of ``profiles``, and if no word is given.
    """
    found: list[str] = []
    if not words:
        raise UsageError("no DEVICE is given", next_step="aliquot docker run-args --help")
    for word in (part.strip() for text in words for part in text.split(",")):
        times = _TIMES.fullmatch(word)
        one, count = (times.group(1), int(times.group(2))) if times else (word, 1)
        _check(one, profiles)
        if not count:
            raise UsageError(f"{word}: the count must be at least 1", next_step="aliquot docker list")
        found += [one] * count
    return tuple(found)


def _check(word: str, profiles: ProfileNames) -> None:
    if any(p.fullmatch(word) for p in (_UUID, _OLD_UUID, _INDEX, _BARE, _PCI)):
        return
    if word.upper().startswith(("MIG-", "GPU-")):
        raise UsageError(f"{word} is not a valid UUID of a GPU or MIG device", next_step="aliquot docker list")
    try:
        ProfileName.parse(word)
    except ValueError as error:
        sentence = f"invalid device {word!r}: use a profile (3g.20gb), a UUID (MIG-...) or an index (0:1)"
        raise UsageError(
            sentence, details=(f"{error}{did_you_mean(word, profiles())}",), next_step="aliquot docker list"
        ) from error


def pick(
    requested: Sequence[str], devices: Sequence[ContainerDevice], busy: Busy, *, share: bool = False
) -> tuple[ContainerDevice, ...]:
    """Return one device for each word, in the same order and without duplicates. ``share`` allows a named device that
    is held.

    Of a profile's free devices, choose one on the GPU with the most taken devices, so that other GPUs stay idle and can
    be repartitioned. Then choose the lowest index. Raises NoFreeDeviceError, BareIndexError.
    """
    chosen: dict[int, ContainerDevice] = {}
    for n, word in enumerate(requested):
        if not is_profile(word):
            chosen[n] = _named(word, devices, busy, share, tuple(chosen.values()))
    for n, word in enumerate(requested):
        if n not in chosen:
            chosen[n] = _of_profile(word, devices, busy, tuple(chosen.values()), share)
    return tuple(chosen[n] for n in range(len(requested)))


def is_profile(word: str) -> bool:
    """Report whether a parsed request names a profile, and no single device."""
    return "g." in word and not word.upper().startswith(("MIG-", "GPU-"))


def _named(
    word: str, devices: Sequence[ContainerDevice], busy: Busy, share: bool, taken: Sequence[ContainerDevice]
) -> ContainerDevice:
    _refuse_bare(word, devices)
    names = word.lower()
    for device in devices:
        mine = [device.uuid.lower(), device.index]
        if device.number < 0:
            mine += [device.pci.lower(), device.pci.lower().removeprefix("0000:")]
        if names not in mine:
            continue
        if device in taken:
            raise UsageError(f"{word} is requested twice", next_step="aliquot docker list")
        if device.uuid in busy and not share:
            raise _taken_error(f"{word} is not free: {_holders_text(busy[device.uuid])}", [device], busy, own=True)
        return device
    raise NoFreeDeviceError(
        f"this node has no device {word}", details=tuple(map(str, devices)) or (_NONE,), next_step="aliquot docker list"
    )


_NONE = "the node has no devices: it has no GPU, or its GPUs are in MIG mode without instances"


def _refuse_bare(word: str, devices: Sequence[ContainerDevice]) -> None:
    """Raise BareIndexError for a GPU in MIG mode: its number, address or UUID names no device that a container could
    use.
    """
    inside = [d for d in devices if d.number >= 0 and word.lower() in _of_gpu(d)]
    if not inside:
        return
    raise BareIndexError(
        f"{word} is a GPU in MIG mode: name one of its MIG devices instead",
        details=tuple(map(str, inside)),
        next_step=f"aliquot docker run-args {inside[0].index}",
    )


def _of_gpu(device: ContainerDevice) -> tuple[str, ...]:
    pci = device.pci.lower()
    return str(device.gpu), pci, pci.removeprefix("0000:"), device.gpu_uuid.lower()


def _of_profile(
    word: str, devices: Sequence[ContainerDevice], busy: Busy, taken: Sequence[ContainerDevice], share: bool
) -> ContainerDevice:
    wanted = ProfileName.parse(word)
    mine = [d for d in devices if d.profile and ProfileName.parse(d.profile) == wanted]
    free = [d for d in mine if d not in taken and (share or d.uuid not in busy)]
    if free:
        used = Counter(d.gpu for d in devices if d.uuid in busy or d in taken)
        return min(free, key=lambda d: (d.uuid in busy, -used[d.gpu], d.gpu, d.number))
    if not mine:
        kinds = Counter(d.profile or "whole GPU" for d in devices)
        there = f"it has {', '.join(f'{n} x {kind}' for kind, n in kinds.items())}" if kinds else _NONE
        raise NoFreeDeviceError(
            f"no GPU of this node has a {word}", details=(there,), next_step=f"aliquot explain {word}"
        )
    others = [d for d in mine if d not in taken]
    if len(others) < len(mine):
        free_text = f"{len(mine) - len(others)} of {len(mine)}"
        raise _taken_error(f"not enough {word} are free: {free_text}", others, busy)
    count = "the only one" if len(mine) == 1 else f"all {len(mine)}"
    raise _taken_error(f"no {word} is free: {count} of this node {'is' if len(mine) == 1 else 'are'} taken", mine, busy)


def _taken_error(
    sentence: str, devices: Sequence[ContainerDevice], busy: Busy, *, own: bool = False
) -> NoFreeDeviceError:
    rows = () if own else tuple(f"{d.index}  {d.uuid}  {_holders_text(busy[d.uuid])}" for d in devices)
    reserved = [h for d in devices for h in busy.get(d.uuid, ()) if h.kind == "reservation"]
    following = f"aliquot docker release {quote(reserved[0].releasable)}" if reserved else "aliquot docker list"
    return NoFreeDeviceError(sentence, details=rows, next_step=following)


def _holders_text(holders: Sequence[Holder]) -> str:
    return ", ".join(map(str, holders))
