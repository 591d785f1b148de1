"""The page over a cluster: nodes and their documents change, come and go, streams open and close, watches break."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aliquot.core.model.inventory import Holder, Inventory
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.node_document import GPUS, KEY, LABEL, NodeDocument, encode, map_name
from laws.soak.growth import soak
from laws.soak.program import Pages, Program, Watches
from support import factory
from support.cluster import JSON, StandinCluster
from system.dashboard import stub
from system.kubernetes.agent_rights import NS

NODES = ("n1", "n2")
LAYOUTS = (("3g.20gb@4", "1g.5gb@0"), ("2g.10gb@0", "1g.5gb@4"), ("7g.40gb@0",), tuple(f"1g.5gb@{n}" for n in range(7)))
PATHS = ("/", "/mig", "/vgpus", "/history", "/machines", "/metrics")


class Fleet:
    """Nodes of a cluster, and the documents that agents would publish about them."""

    def __init__(self, cluster: StandinCluster) -> None:
        self.cluster = cluster
        cluster.namespace(NS)
        for name in NODES:
            self.add(name)

    def add(self, name: str) -> None:
        meta = {"name": name, "labels": {names.DEPLOY_LABEL: "true"}}
        self.cluster.must("POST", "/api/v1/nodes", {"metadata": meta})
        of_map = {"name": map_name(name, GPUS), "labels": {LABEL: GPUS}}
        self.cluster.must("POST", f"/api/v1/namespaces/{NS}/configmaps", {"metadata": of_map, "data": data(name, 0)})

    def remove(self, name: str) -> None:
        for path in (f"/api/v1/nodes/{name}", self._document(name)):
            self.cluster.must("DELETE", path)

    def change(self, name: str, number: int) -> None:
        """Change the layout of a node, its holder and a label."""
        self.cluster.must("PATCH", self._document(name), {"data": data(name, number)})
        label = {names.CONFIG_LABEL: f"config-{number % 5}"}
        self.cluster.must("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": label}})

    def _document(self, name: str) -> str:
        return f"/api/v1/namespaces/{NS}/configmaps/{map_name(name, GPUS)}"


def data(name: str, number: int) -> JSON:
    made = factory.with_instances(
        factory.inventory("a100-sxm4-40gb*2", enabled=True), 0, *LAYOUTS[number % len(LAYOUTS)]
    )
    held: Inventory = stub.held(made, 0, 0, by=Holder("pod", f"training/number-{number}", ""))
    failure = "no GPU driver answers" if number % 11 == 10 else ""
    return {KEY: encode(NodeDocument(stub.replace(held, node=name), at="2026-01-01T00:00:00Z", read_error=failure))}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    cluster = StandinCluster(tmp_path)
    yield Fleet(cluster)
    cluster.close()


def test_the_page_over_a_cluster(fleet: Fleet, tmp_path: Path) -> None:
    control = fleet.cluster.standin.control
    words = ("dashboard", "--listen", "127.0.0.1:0", "--kubeconfig", str(fleet.cluster.kubeconfig()), "--namespace", NS)
    with (
        Program(tmp_path / "log", *words) as program,
        closing(Pages(int(program.messages(r"127\.0\.0\.1:(\d+)/login")))) as pages,
    ):
        pages.headers["Authorization"] = "Bearer " + program.messages(r"with the token (\S+)")

        def disturb(number: int) -> None:
            match number % 5:
                case 0:
                    control.drop()
                case 1:
                    fleet.cluster.expire()
                case 2:
                    pages.stream("/live?page=/")
                case 3:
                    pages.close()
                case _:
                    fleet.add("brief")
                    program.until(lambda: "brief" in pages.get("/"), "the new node")
                    fleet.remove("brief")

        def cycle(number: int) -> None:
            node = NODES[number % len(NODES)]
            fleet.change(node, number)
            program.until(lambda: f"number-{number}" in pages.get(f"/nodes/{node}"), "the new document")
            disturb(number)
            pages.get(PATHS[number % len(PATHS)])

        fleet.change(NODES[0], 0)
        program.until(lambda: "number-0" in pages.get(f"/nodes/{NODES[0]}"), "the first document")
        watches = Watches(control)

        def rest() -> None:
            pages.close()
            watches.again()

        soak(program.pid, tmp_path, cycle, rest)
