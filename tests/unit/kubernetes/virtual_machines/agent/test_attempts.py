"""Retries of a request, and the message why it is not met."""

from __future__ import annotations

from aliquot.core.model.actions import SetMode
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Holder
from aliquot.core.model.plan import Blocker, Plan, Policy, make_plan
from aliquot.errors import HardwareError, InUseError
from aliquot.kubernetes.gpu.reasons import reason_word
from aliquot.kubernetes.virtual_machines.agent.retry_state import (
    BACKOFF,
    CALM_S,
    MAX_REPEATS,
    RetryTracker,
    error_result,
    plan_result,
)
from aliquot.kubernetes.virtual_machines.harvester.node_view import Result

PCI = "0000:08:00.0"


def failure(digest: str = "a") -> Result:
    return Result(digest, False, "HardwareRefused", "no")


def test_pauses_double_up_to_five_minutes() -> None:
    attempts, now = RetryTracker(), 100.0
    pauses = [attempts.record_failure(PCI, failure(), now) for _ in range(12)]
    assert pauses[:4] == [BACKOFF.first, 2 * BACKOFF.first, 4 * BACKOFF.first, 8 * BACKOFF.first]
    assert pauses[-1] == BACKOFF.longest
    assert not attempts.is_due(PCI, "a", now + BACKOFF.longest - 1)
    assert attempts.is_due(PCI, "a", now + BACKOFF.longest)


def test_another_request_is_tried_at_once_and_has_no_failures_of_the_previous() -> None:
    attempts = RetryTracker()
    for _ in range(8):
        attempts.record_failure(PCI, failure(), 0.0)
    assert attempts.is_due(PCI, "b", 0.0)
    assert attempts.result(PCI, "b") is None
    assert attempts.record_failure(PCI, failure("b"), 0.0) == BACKOFF.first


def test_one_gpu_does_not_wait_for_another() -> None:
    attempts = RetryTracker()
    attempts.record_failure(PCI, failure(), 0.0)
    assert attempts.is_due("0000:09:00.0", "a", 0.0)


def test_the_next_is_the_first_of_those_that_are_still_requested() -> None:
    attempts = RetryTracker()
    attempts.record_failure(PCI, failure(), 0.0)
    attempts.record_failure("0000:09:00.0", failure("old"), 0.0)
    attempts.record_failure("0000:0a:00.0", failure(), 0.0)
    attempts.record_failure("0000:0a:00.0", failure(), 0.0)
    requested = {"0000:09:00.0": "new", "0000:0a:00.0": "a"}
    assert attempts.next_due_s(requested, 0.5) == 1.5
    assert attempts.next_due_s({}, 0.5) is None


def test_what_is_only_postponed_tells_nothing_and_does_not_count() -> None:
    attempts = RetryTracker()
    attempts.postpone(PCI, "a", 0.0)
    assert attempts.result(PCI, "a") is None
    assert not attempts.is_due(PCI, "a", 0.5)
    assert attempts.record_failure(PCI, failure(), 2.0) == BACKOFF.first


def test_a_request_that_is_over_is_forgotten() -> None:
    attempts = RetryTracker()
    attempts.record_failure(PCI, failure(), 0.0)
    attempts.retain([])
    assert attempts.is_due(PCI, "a", 0.0)


class TestJudgedBeforeAnythingIsDone:
    def plan(self, *blockers: Blocker) -> Plan:
        return Plan("n", "f", Desired(()), blockers=blockers)

    def test_nothing_to_do_is_met(self) -> None:
        assert plan_result(self.plan(), "a") == Result("a", True, "Applied")

    def test_work_to_do_is_not_known_yet(self) -> None:
        actions = (SetMode(gpu=PCI, reason="x", mode="enabled"),)
        assert plan_result(make_plan("n", "f", Desired(()), actions, policy=Policy(), unchanged=0), "a") is None

    def test_a_mode_that_waits_for_a_reboot_says_so(self) -> None:
        plan = make_plan("n", "f", Desired(()), (), policy=Policy(), unchanged=0, reboots=(PCI,))
        found = plan_result(plan, "a")
        assert found is not None
        assert (found.ok, found.reason) == (False, "RebootNeeded")

    def test_held_names_the_holder_and_what_to_do(self) -> None:
        blocker = Blocker("HELD", "a vGPU is in use", PCI, holders=(Holder("process", "42", "qemu"),), step="x")
        found = plan_result(self.plan(blocker, blocker), "a")
        assert found is not None
        assert found.reason == "Held"
        assert found.message.startswith("a vGPU is in use (and 1 more); in use by process 42 (qemu) | next: shut")

    def test_the_rule_becomes_a_word_for_conditions(self) -> None:
        found = plan_result(self.plan(Blocker("NO_INSTANCE", "no room", PCI, step="aliquot show")), "a")
        assert found == Result("a", False, reason_word("NO_INSTANCE"), "no room | next: aliquot show")


def test_errors_as_results() -> None:
    error = HardwareError("the driver refused", details=("code 0x38",), next_step="dmesg")
    text = "the driver refused; the former state is back; code 0x38 | next: dmesg"
    assert error_result(error, "a", "the former state is back") == Result("a", False, "HardwareRefused", text)
    assert error_result(InUseError("busy"), "a").reason == "Held"
    assert len(error_result(HardwareError("x" * 5000), "a").message) == 1000


def test_what_is_reverted_again_and_again_backs_off() -> None:
    # Two controllers change the same GPU: neither may wear it out, and the requester gets a message.
    attempts, now = RetryTracker(), 0.0
    for _ in range(MAX_REPEATS):
        assert attempts.is_due(PCI, "a", now)
        attempts.record_success(PCI, "a", now)
        attempts.clear(PCI)  # the next observation finds the request met
        assert attempts.result(PCI, "a") is None
        now += 0.1
    attempts.record_success(PCI, "a", now)
    attempts.clear(PCI)
    assert not attempts.is_due(PCI, "a", now)
    assert attempts.next_due_s({PCI: "a"}, now) == BACKOFF.first
    reported = attempts.result(PCI, "a")
    assert reported is not None
    assert (reported.ok, reported.reason) == (False, "Undone")
    assert attempts.is_due(PCI, "b", now), "another request is not delayed"
    assert attempts.is_due(PCI, "a", now + BACKOFF.first)
    for _ in range(12):
        attempts.record_success(PCI, "a", now)
    assert attempts.next_due_s({PCI: "a"}, now) == BACKOFF.longest


def test_the_same_request_long_afterwards_is_nothing_odd() -> None:
    attempts = RetryTracker()
    for turn in range(20):
        now = turn * (CALM_S + 1)
        assert attempts.is_due(PCI, "a", now)
        attempts.record_success(PCI, "a", now)


def test_a_user_who_switches_on_and_off_is_served_at_once() -> None:
    attempts = RetryTracker()
    for turn in range(20):
        assert attempts.is_due(PCI, "ab"[turn % 2], 0.0)
        attempts.record_success(PCI, "ab"[turn % 2], 0.0)
