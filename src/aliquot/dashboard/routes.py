"""The pages and their paths."""

from __future__ import annotations

from aliquot.dashboard.page import Route
from aliquot.dashboard.pages import claims, fleet, gpu, history, mig, node, plan, sriov, vgpus
from aliquot.dashboard.pages import vms as machines
from aliquot.dashboard.view_models import CLUSTER

ROUTES = (
    Route("/", "fleet", fleet.show, "Fleet"),
    Route("/nodes/{node}", "node", node.show),
    Route("/nodes/{node}/gpus/{pci}", "gpu", gpu.show),
    Route("/pictures/{node}", "pictures", fleet.pictures),
    Route("/plans/{id}", "plan", plan.show),
    Route("/mig", "mig", mig.show, "MIG"),
    Route("/claims", "claims", claims.show, "Claims", kinds=(CLUSTER,)),
    Route("/sriov", "sriov", sriov.show, "SR-IOV"),
    Route("/vgpus", "vgpus", vgpus.show, "vGPUs"),
    Route("/machines", "machines", machines.show, "VMs"),
    Route("/history", "history", history.show, "History", tracked=False),
)
"""All routes, in the order of the navigation."""
