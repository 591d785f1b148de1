"""Prepared ResourceClaims hold their devices for every program."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.core.planner.plan import plan
from aliquot.errors import StorageDeniedError, StorageError
from aliquot.node.claims import ClaimCollector, HeldBackend
from aliquot.node.holders.prepared_claims import (
    ClaimRecords,
    PreparedClaimFile,
    RecordedClaim,
    RecordedDevice,
    claims_in,
)
from support.simnodes import Node


def _record(folder: Path, uuid: str, gpu: str, *, shared: bool = False) -> None:
    device = RecordedDevice(("r",), "n-aliquot", "part", gpu, 9, "0:4", uuid, shared=shared)
    PreparedClaimFile(str(folder)).save(ClaimRecords((RecordedClaim("u", "team", "train", "boot", (device,)),)))


@pytest.mark.parametrize("shared", [False, True])
def test_every_plan_keeps_the_device_of_a_claim(tmp_path: Path, shared: bool) -> None:
    node = Node("a100-sxm4-40gb").cut("0", "3g.20gb*2")
    backend = HeldBackend(node.whole, ClaimCollector(str(tmp_path), str(tmp_path), (), lambda _: None).claims)
    desired = node.desired_state("0", "7g.40gb")
    assert not plan(backend.read(), desired).blockers
    gpu = node.backend.read().gpus[0]
    _record(tmp_path, gpu.instances[0].compute_instances[0].uuid, gpu.uuid, shared=shared)
    blockers = plan(backend.read(), desired).blockers
    if shared:
        assert blockers == ()
    else:
        assert [str(holder) for holder in blockers[0].holders] == ["claim team/train"]
        assert "kubectl -n team describe resourceclaim train" in str(blockers[0].next_step)


def test_a_user_without_rights_gets_one_note_and_a_broken_disk_stops_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    claims = claims_in(str(tmp_path), lines.append)
    assert claims(()) == ()

    def fail(error: StorageError) -> None:
        def load(_: object) -> ClaimRecords:
            raise error

        monkeypatch.setattr(PreparedClaimFile, "load", load)

    fail(StorageDeniedError("permission denied"))
    assert claims(()) == claims(()) == ()
    assert lines == ["note     the prepared ResourceClaims are not shown: permission denied"]
    fail(StorageError("input/output error"))
    with pytest.raises(StorageError):
        claims(())
