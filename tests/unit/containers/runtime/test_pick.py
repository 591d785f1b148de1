"""Device picks and refusals."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aliquot.containers.runtime.choose import parse_requests, pick
from aliquot.containers.runtime.errors import BareIndexError, NoFreeDeviceError
from aliquot.containers.runtime.models import ContainerDevice, RequestedDevices
from aliquot.containers.runtime.reserve import busy, stopped_containers
from aliquot.core.model.inventory import Holder
from aliquot.errors import AliquotError, UsageError
from unit.containers.runtime.nodes import all_devices, container, nodes_of, uuid

HOLDERS = (Holder("process", "4711", "python"),)
FIRST, SECOND, TWO, ONE = uuid(0, 1), uuid(0, 2), uuid(1, 5), uuid(1, 7)
WHOLE = all_devices()[-1].uuid


def picked(*words: str, taken: Sequence[str] = (), share: bool = False) -> list[str]:
    found = pick(parse_requests(words), all_devices(), dict.fromkeys(taken, HOLDERS), share=share)
    return [d.uuid for d in found]


def test_names_of_devices() -> None:
    assert [d.index for d in all_devices()] == ["0:0", "0:1", "1:0", "1:1", "2"]
    for word, device in (("0:1", SECOND), ("1:1", ONE), (TWO, TWO), (TWO.upper().replace("MIG", "mig"), TWO)):
        assert picked(word) == [device]
    assert picked("2") == picked(WHOLE) == picked(all_devices()[-1].pci) == [WHOLE]


def test_a_profile_takes_any_that_is_free() -> None:
    assert picked("3g.20gb") == [FIRST]
    assert picked("3g.20gb", taken=[FIRST]) == [SECOND]
    assert picked("03g.20gb") == [FIRST]  # numbers are compared as numbers


def test_several_are_different_and_names_go_first() -> None:
    assert picked("3g.20gb", "0:0") == [SECOND, FIRST]
    assert picked("3g.20gb*2,1g.5gb") == [FIRST, SECOND, ONE]


def test_idle_gpus_stay_idle() -> None:
    devices = all_devices()
    more = [*devices, *(ContainerDevice(f"MIG-{n}", 5 + n, 0, "2g.10gb", 0, "p", "g", (9,)) for n in range(2))]
    # equal in every other respect: the lowest index wins
    assert pick(["2g.10gb"], more, {"MIG-1": HOLDERS})[0].uuid == TWO
    used = {ONE: HOLDERS, "MIG-0": HOLDERS}
    assert pick(["2g.10gb"], [more[-1], *devices], used)[0].uuid == TWO


@pytest.mark.parametrize(
    ("word", "taken", "kind", "says"),
    [
        ("0", (), BareIndexError, "a GPU in MIG mode"),
        ("0000:07:00.0", (), BareIndexError, "a GPU in MIG mode"),
        ("3g.20gb", (FIRST, SECOND), NoFreeDeviceError, "all 2 of this node are taken"),
        ("1g.5gb", (ONE,), NoFreeDeviceError, "the only one of this node is taken"),
        ("7g.40gb", (), NoFreeDeviceError, "no GPU of this node has a 7g.40gb"),
        ("0:0", (FIRST,), NoFreeDeviceError, "process 4711 (python)"),
        ("0:7", (), NoFreeDeviceError, "no device 0:7"),
        ("9", (), NoFreeDeviceError, "no device 9"),
        (uuid(9, 9), (), NoFreeDeviceError, "no device MIG-"),
        ("0:0,0:0", (), UsageError, "twice"),
        ("MIG-xyz", (), UsageError, "not a valid UUID"),
        ("large", (), UsageError, "invalid device"),
        ("3g.20gb*0", (), UsageError, "must be at least 1"),
        ("", (), UsageError, "invalid device"),
    ],
)
def test_refusals(word: str, taken: Sequence[str], kind: type[AliquotError], says: str) -> None:
    with pytest.raises(kind) as caught:
        picked(word, taken=taken)
    assert says in caught.value.brief
    assert caught.value.next_step


def test_a_refusal_lists_the_kinds_and_the_devices_of_others_only() -> None:
    with pytest.raises(NoFreeDeviceError) as absent:
        picked("7g.40gb")
    assert absent.value.details == ("it has 2 x 3g.20gb, 1 x 2g.10gb, 1 x 1g.5gb, 1 x whole GPU",)
    with pytest.raises(NoFreeDeviceError, match=r"not enough 3g\.20gb are free: 1 of 2") as few:
        picked("3g.20gb*3", taken=[SECOND])
    assert few.value.details == (f"0:1  {SECOND}  process 4711 (python)",)


def test_a_bare_index_is_answered_with_the_list() -> None:
    with pytest.raises(BareIndexError) as caught:
        picked("0")
    assert [line.split()[:2] for line in caught.value.details] == [["0:0", FIRST], ["0:1", SECOND]]
    assert caught.value.next_step == "aliquot docker run-args 0:0"


def test_a_caller_that_asks_may_share() -> None:
    assert picked("0:0", taken=[FIRST], share=True) == [FIRST]
    assert picked("3g.20gb", taken=[FIRST], share=True) == [SECOND]
    assert picked("1g.5gb", taken=[ONE], share=True) == [ONE]


def test_what_containers_were_started_with_is_taken() -> None:
    devices = all_devices()
    names = {d.index: d.uuid for d in devices} | {d.uuid: d.uuid for d in devices}
    found = busy(
        devices,
        [
            container("1" * 64, requested=RequestedDevices(("0:1",))),
            container("2" * 64, "created", requested=RequestedDevices((TWO, "gone"))),
            container("3" * 64, "exited", requested=RequestedDevices((FIRST,))),
            container("4" * 64, requested=RequestedDevices(everything=True)),
            container("5" * 64, requested=RequestedDevices(nodes=tuple(nodes_of(devices[3])))),
        ],
        names,
    )
    assert {u: [h.id for h in holders] for u, holders in found.items()} == {
        SECOND: ["docker:" + "1" * 12],
        TWO: ["docker:" + "2" * 12],
        ONE: ["docker:" + "5" * 12],
    }


def test_containers_that_ended_are_reported() -> None:
    ended = container("3" * 64, "exited", requested=RequestedDevices((FIRST,)))
    assert stopped_containers([ended], all_devices()[0], {FIRST: FIRST}) == (ended,)
    assert stopped_containers([container(requested=RequestedDevices((FIRST,)))], all_devices()[0], {FIRST: FIRST}) == ()


def test_a_reserved_device_is_freed_by_its_name_or_id() -> None:
    for holder, word in (
        (Holder("reservation", "podman:674c", "web"), "web"),
        (Holder("reservation", "podman:674c"), "674c"),
    ):
        with pytest.raises(NoFreeDeviceError) as caught:
            pick(("3g.20gb",), all_devices(), dict.fromkeys((FIRST, SECOND), (holder,)))
        assert caught.value.next_step == f"aliquot docker release {word}"


def test_a_typing_error_of_a_profile_is_recognized() -> None:
    with pytest.raises(UsageError) as caught:
        parse_requests(["1g.5bg"])
    assert "did you mean 1g.5gb" in caught.value.details[0]
    with pytest.raises(UsageError) as caught:
        parse_requests(["1g.5bg"], lambda: ["1g.6gb", "4g.24gb"])
    assert caught.value.details[0].endswith("(did you mean 1g.6gb?)")
