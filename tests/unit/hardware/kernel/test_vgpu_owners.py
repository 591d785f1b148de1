"""The owner map and the types learned from the driver, on disk: older releases, other versions, invalid bytes."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.core.model.inventory import Gpu
from aliquot.errors import StorageError
from aliquot.foundation import state_store
from aliquot.hardware.kernel import driver_types
from aliquot.hardware.kernel.driver_types import DriverTypeInfo, LearnedTypes
from aliquot.hardware.kernel.framework import VgpuTypeOffer
from aliquot.hardware.kernel.vgpu_owners import (
    FILE,
    OLD_FILE,
    OwnerMap,
    OwnerMapFile,
    PassthroughRecord,
    SchedulerRecord,
    VgpuOwner,
)
from laws.oracle import mig_nodes

ONE = VgpuOwner("0000:41:00.4", 563, uuid="u1", ownership_token="c1", number=0)
TWO = VgpuOwner("0000:41:00.5", 563, uuid="u2", ownership_token="c2", number=1)
UNAVAILABLE = PassthroughRecord("0000:81:00.0", {"0000:81:00.0": "nvidia"}, uuid="GPU-1", product="A2")


@pytest.fixture(autouse=True)
def _nothing_reported_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "unreadable", {})


def both(owners: OwnerMapFile) -> OwnerMap:
    owners.change(lambda book: book.with_passthrough(UNAVAILABLE))
    return owners.change(lambda book: book.with_owner(ONE))


def test_a_damaged_map_keeps_the_gpus_in_passthrough_and_no_claim(tmp_path: Path) -> None:
    owners = OwnerMapFile(str(tmp_path))
    both(owners)
    owners.change(lambda book: book.with_owner(TWO))
    (tmp_path / FILE).write_bytes(b"\xff")
    book, fault = owners.load()
    assert (book, "damaged" in fault) == (OwnerMap(passthrough=(UNAVAILABLE,)), True)
    owners.change(lambda book: book)
    assert OwnerMapFile(str(tmp_path)).load() == (OwnerMap(passthrough=(UNAVAILABLE,)), "")
    assert (tmp_path / f"{FILE}.unreadable").read_bytes() == b"\xff"


def test_the_map_of_an_older_release_is_taken_over_and_merged(tmp_path: Path) -> None:
    owners = OwnerMapFile(str(tmp_path))
    (tmp_path / OLD_FILE).write_bytes(msgspec.json.encode({"version": 1, "vgpus": [ONE], "handed": [UNAVAILABLE]}))
    assert owners.load() == (OwnerMap((ONE,), (UNAVAILABLE,)), "")
    owners.change(lambda book: book.with_owner(TWO))
    assert (tmp_path / f"{OLD_FILE}.imported").exists()
    assert owners.load() == (OwnerMap((ONE, TWO), (UNAVAILABLE,)), "")
    again = msgspec.structs.replace(ONE, uuid="u3", ownership_token="c3")
    (tmp_path / OLD_FILE).write_bytes(msgspec.json.encode({"version": 1, "vgpus": [again], "handed": []}))
    assert owners.load() == (OwnerMap((TWO, again), (UNAVAILABLE,)), "")


def test_a_damaged_map_of_an_older_release_ends_no_vgpu_until_the_next_change(tmp_path: Path) -> None:
    owners = OwnerMapFile(str(tmp_path))
    both(owners)
    (tmp_path / OLD_FILE).write_bytes(b"\xff")
    assert owners.load()[0] == OwnerMap(passthrough=(UNAVAILABLE,))
    assert owners.damaged == str(tmp_path / OLD_FILE), "the file that the message asks the user to move away"
    owners.change(lambda book: book)
    assert owners.load() == (OwnerMap(passthrough=(UNAVAILABLE,)), "")
    assert owners.damaged == ""
    assert (tmp_path / f"{OLD_FILE}.unreadable").exists()


def test_fields_of_a_newer_version_outlive_a_change(tmp_path: Path) -> None:
    owners = OwnerMapFile(str(tmp_path))
    both(owners)
    found = json.loads((tmp_path / FILE).read_bytes())
    found["content"]["vgpus"][0]["colour"] = "red"
    content = msgspec.json.encode(found["content"])
    file = found | {"content": msgspec.Raw(content), "checksum": state_store._checksum(content)}
    (tmp_path / FILE).write_bytes(msgspec.json.encode(file))
    owners.change(lambda book: book.with_owner(TWO))
    assert b'"colour":"red"' in (tmp_path / FILE).read_bytes()


def test_a_map_that_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    owners = OwnerMapFile(str(tmp_path))
    assert "cannot be read" in owners.load()[1]
    with pytest.raises(StorageError):
        owners.change(lambda book: book.with_owner(ONE))


def offer(number: int, name: str) -> VgpuTypeOffer:
    return VgpuTypeOffer(number, 1, name)


def gpu() -> Gpu:
    return mig_nodes.gpu(catalog.family("a100-40gb"), [], [])


def test_types_of_an_older_release_are_known_and_bad_bytes_cost_names_only(tmp_path: Path) -> None:
    product = driver_types.key(gpu())
    (tmp_path / "vgpu-types.json").write_bytes(msgspec.json.encode({product: {"7": {"name": "X-1Q"}}}))
    memory = LearnedTypes(str(tmp_path))
    memory.learn(gpu(), [offer(8, "X-2Q")])
    known = {7: DriverTypeInfo("X-1Q"), 8: DriverTypeInfo("X-2Q")}
    assert LearnedTypes(str(tmp_path)).for_gpu(gpu()) == known
    assert (tmp_path / "vgpu-types.json.imported").exists()
    (tmp_path / "vgpu-types.json").write_bytes(msgspec.json.encode({product: {"9": {"name": "X-4Q"}}}))
    assert sorted(LearnedTypes(str(tmp_path)).for_gpu(gpu())) == [7, 8, 9], "an older release ran since"
    (tmp_path / "vgpu-types.json").unlink()
    (tmp_path / driver_types.FILE).write_bytes(b"\xff")
    again = LearnedTypes(str(tmp_path))
    again.learn(gpu(), [offer(8, "X-2Q")])
    assert again.for_gpu(gpu())[8].name == "X-2Q"
    assert (tmp_path / f"{driver_types.FILE}.unreadable").read_bytes() == b"\xff"


def test_a_scheduler_counts_in_its_boot_only(tmp_path: Path) -> None:
    owners = OwnerMapFile(str(tmp_path))
    for boot, scheduler in (("b1", "equal-share,2ms"), ("b1", "fixed-share"), ("b2", "equal-share")):
        record = SchedulerRecord("GPU-1", scheduler, boot)
        owners.change(lambda owner_map, record=record: owner_map.with_scheduler(record))  # type: ignore[misc]
        found = OwnerMapFile(str(tmp_path)).load()[0]
        assert (found.scheduler_of("GPU-1", boot), len(found.schedulers)) == (scheduler, 1)
    assert (found.scheduler_of("GPU-1", "b1"), found.scheduler_of("GPU-2", "b2")) == ("", "")


def test_gpu_instances_have_schedulers_of_their_own(tmp_path: Path) -> None:
    owners = OwnerMapFile(str(tmp_path))
    for instance, scheduler in ((None, "fixed-share"), (3, "equal-share"), (4, "best-effort"), (3, "equal-share,2ms")):
        record = SchedulerRecord("GPU-1", scheduler, "b1", instance)
        owners.change(lambda owner_map, record=record: owner_map.with_scheduler(record))  # type: ignore[misc]
    found = owners.load()[0]
    assert [found.scheduler_of("GPU-1", "b1", n) for n in (None, 3, 4, 5)] == [
        "fixed-share",
        "equal-share,2ms",
        "best-effort",
        "",
    ]
