"""Ask a real kube-apiserver everything that the stand-in must answer alike, and write the answers down.

    python tools/record_apiserver.py            into tests/recorded/kube-apiserver; needs kube-apiserver and etcd

The binaries are looked for as the tests do (``KUBEBUILDER_ASSETS``).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from tools import record_facts  # noqa: E402
from tools.apiserver import access, changes, extending, objects, pods, reading  # noqa: E402

from support.cluster import RealCluster  # noqa: E402
from support.cluster_real import RealServer, assets  # noqa: E402
from support.cluster_replay import Replay  # noqa: E402

JSON = dict[str, Any]
FOLDER = ROOT / "tests" / "recorded" / "kube-apiserver"
SCENARIOS: dict[str, Callable[[], list[JSON]]] = {
    "objects": objects.objects,
    "metadata": objects.metadata,
    "bodies": objects.bodies,
    "patches": changes.patches,
    "apply": changes.server_side_apply,
    "pods": pods.pods,
    "budgets": pods.budgets,
    "daemon-sets": pods.daemon_sets,
    "access": access.access,
    "lists": reading.lists,
    "watches": reading.watches,
    "discovery": reading.discovery,
    "custom-resources": extending.custom_resources,
    "small-kinds": extending.small_kinds,
    "admission": extending.admission,
}


def main() -> int:
    binaries = assets()
    if binaries is None:
        print("no kube-apiserver and etcd in KUBEBUILDER_ASSETS", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="record-") as folder:
        server = RealServer(Path(folder), binaries)
        try:
            cluster = RealCluster(server, Path(folder))
            cluster.wait_ready()
            version = cluster.get("/version")["gitVersion"]
            provenance = {"server": f"kube-apiserver {version}", "by": "tools/record_apiserver.py"}
            _facts(cluster, provenance)
            for name, steps in SCENARIOS.items():
                _scenario(cluster, provenance, name, steps())
        finally:
            server.close()
    return 0


def _facts(cluster: RealCluster, provenance: JSON) -> None:
    def get(path: str, media: str) -> JSON:
        return cluster.must("GET", path, headers={"Accept": media})

    rows = record_facts.kinds(get)
    _write("kinds", provenance, "kinds", rows)
    _write("schemas", provenance, "schemas", record_facts.schemas(get, rows))


def _scenario(cluster: RealCluster, provenance: JSON, name: str, steps: list[JSON]) -> None:
    replay = Replay(cluster)
    found = [{"request": step, "answer": replay.run(step)} for step in steps]
    cluster.close()
    _write(f"answers-{name}", provenance, "steps", found)
    print(f"{name}: {len(found)} requests")


def _write(name: str, provenance: JSON, key: str, value: list[Any] | JSON) -> None:
    """Write one entry per line, so that a change of the server is a readable difference."""
    rows: Iterable[str]
    if isinstance(value, list):
        rows, ends = (json.dumps(row) for row in value), "[]"
    else:
        rows, ends = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()), "{}"
    body = ends[0] + "\n" + ",\n".join(rows) + "\n" + ends[1]
    text = f'{{"provenance": {json.dumps(provenance)},\n"{key}": {body}}}\n'
    (FOLDER / f"{name}.json").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
