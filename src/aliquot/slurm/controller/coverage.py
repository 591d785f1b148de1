"""Jobs that free devices suit, in the order of service: the nodes that have them, and their promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aliquot.slurm.controller.job_demand import JobDemand
from aliquot.slurm.controller.models import SlurmNodeState
from aliquot.slurm.controller.slot_boards import room


class PromisedDevices(msgspec.Struct, frozen=True):
    """Devices of a node that a job is about to get."""

    demand: JobDemand
    copies: int


class FreeDevices:
    """The free devices of all nodes. What is promised to a job is not free for the next one."""

    def __init__(self, node_states: Sequence[SlurmNodeState]) -> None:
        self._node_states = node_states
        self._free = {each.name: each.free for each in node_states}
        self._coming = {each.name: Counter(each.coming) for each in node_states}
        self.promised: dict[str, list[PromisedDevices]] = {}
        """By node, in the order of service."""

    def suiting(self, demand: JobDemand, mismatched: Mapping[str, str]) -> list[SlurmNodeState]:
        """Return the nodes whose free devices suit a job, the best ones first.

        ``mismatched`` has the nodes on which it cannot run in any case.
        """
        suits = [
            each
            for each in self._node_states
            if not mismatched.get(each.name) and self._copies(each, self._free[each.name], demand)
        ]
        return sorted(suits, key=lambda r: (r.name not in self.promised, sum(self._free[r.name].values()), r.name))

    def copies(self, demand: JobDemand, suits: Iterable[SlurmNodeState]) -> dict[str, int]:
        """Return how many copies of a job fit on each of these nodes. A job of several nodes has one on each."""
        found: dict[str, int] = {}
        left = demand.copies if demand.nodes == 1 else demand.nodes
        for each in suits:
            fitting = self._copies(each, self._free[each.name], demand) if demand.nodes == 1 else 1
            if min(left, fitting):
                found[each.name] = min(left, fitting)
                left -= found[each.name]
        return found

    def promise(self, demand: JobDemand, copies: Mapping[str, int]) -> None:
        """Reserve the devices for these copies of a job, by node."""
        for name, number in copies.items():
            self._free[name] -= _times(demand.need, number)
            self.promised.setdefault(name, []).append(PromisedDevices(demand, number))

    def expect(self, demand: JobDemand, mismatched: Mapping[str, str]) -> dict[str, int]:
        """Reserve devices whose jobs end in some seconds. Returns for how many copies, by node."""
        found: dict[str, int] = {}
        left = demand.copies if demand.nodes == 1 else 0
        for each in self._node_states:
            if not mismatched.get(each.name) and self._coming[each.name] and left:
                devices = self._coming[each.name]
                # Its CPUs are free when the job has ended, so they are not counted.
                copies = min(left, _fitting(devices, demand))
                if copies and _takes_jobs(each, demand):
                    self._coming[each.name] = devices - _times(demand.need, copies)
                    found[each.name] = copies
                    left -= copies
        return found

    def _copies(self, node_state: SlurmNodeState, free: Counter[str], demand: JobDemand) -> int:
        """Return how many copies of a job the free devices of a node suit."""
        if not _takes_jobs(node_state, demand):
            return 0
        most = room(node_state, demand) if node_state.board else demand.copies
        return min(most, _fitting(free, demand)) if demand.need else most


def _takes_jobs(node_state: SlurmNodeState, demand: JobDemand) -> bool:
    node = node_state.node
    if node is None or node.draining or node_state.shut or node_state.in_maintenance:
        return False
    return not demand.layouts or bool(set(demand.layouts) & set(node.features))


def _fitting(devices: Mapping[str, int], demand: JobDemand) -> int:
    return min((devices.get(kind, 0) // n for kind, n in demand.need.items() if n), default=0)


def _times(need: Mapping[str, int], copies: int) -> Counter[str]:
    return Counter({kind: n * copies for kind, n in need.items()})
