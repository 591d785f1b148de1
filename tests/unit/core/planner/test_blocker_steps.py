"""Next steps about holders."""

from __future__ import annotations

from aliquot.core.model.inventory import Holder
from aliquot.core.planner.blockers import holders_next_step

WEB = Holder("reservation", "podman:674c", "web")
NAMELESS = Holder("reservation", "podman:88ab")
PROCESS = Holder("process", "4711", "python3")


def test_reservations_are_ended_by_a_command() -> None:
    assert holders_next_step([WEB, NAMELESS, WEB]) == "type 'aliquot docker release web 88ab', or add --policy wait"


def test_other_holders_are_named() -> None:
    assert holders_next_step([PROCESS]) == "end process 4711 (python3), or add --policy wait"
    assert holders_next_step([WEB, PROCESS]).startswith("end reservation podman:674c (web), process 4711")


def test_a_claim_ends_with_its_pods() -> None:
    found = holders_next_step([Holder("claim", "team-a/train"), Holder("claim", "team-a/infer")])
    assert found == "end the pods of the claim (kubectl -n team-a describe resourceclaim train)"
