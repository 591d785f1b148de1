"""Objects of a node that the parts of the label agent share."""

from __future__ import annotations

import msgspec

from aliquot.foundation import lock
from aliquot.kubernetes.gpu.pause_owner import PauseOwner
from aliquot.kubernetes.label_agent.agent.node_informer import NodeInformer
from aliquot.kubernetes.label_agent.agent.state_file import AgentStateFile
from aliquot.kubernetes.node_agent.gpu_worker import GpuWorker


class AgentNode(msgspec.Struct, frozen=True, eq=False):
    """The node of a label agent."""

    informer: NodeInformer
    hardware: GpuWorker
    state_file: AgentStateFile
    owner: PauseOwner = PauseOwner()
    """This agent as the owner of its pauses."""
    change_lock: str = ""
    """Path of the node's change lock."""

    @property
    def writer(self) -> str:
        """The process that holds the change lock; empty if none does."""
        return lock.holder(self.change_lock)
