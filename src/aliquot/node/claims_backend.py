"""A node whose instances also count as held where somebody other than the driver says that they are in use."""

from __future__ import annotations

from typing import TypeVar

from aliquot.core.model.claims import Claims, gpu_with_claims, with_claims
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.hardware.node_backend import NodeBackend, NodeGpuDriver

D = TypeVar("D", bound=NodeGpuDriver, covariant=True)


class HeldBackend(NodeBackend[D]):
    """The node of another backend. ``claims`` is asked at every look: for a plan, and again by the engine before each
    act that destroys, so that a container which started meanwhile stops it.
    """

    def __init__(self, node: NodeBackend[D], claims: Claims) -> None:
        super().__init__(node.nvml, node.kernel)
        self._claims = claims

    def read(self) -> Inventory:
        found = super().read()
        return with_claims(found, self._claims(found.gpus))

    def read_gpu(self, pci: str) -> Gpu:
        gpu = super().read_gpu(pci)
        return gpu_with_claims(gpu, self._claims((gpu,)))
