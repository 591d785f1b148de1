"""Generate deploy/crds, deploy/kubernetes and deploy/helm/aliquot from the objects in the package.

Usage: python tools/build_manifests.py [--check] exit 1 if --check finds a difference
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import chart
from tools.yaml_text import Text

from aliquot.kubernetes.manifests import bundle
from aliquot.kubernetes.manifests.comments import object_comments
from aliquot.kubernetes.manifests.values import Object, Values, beside_operator
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
HEAD = "# Made by tools/build_manifests.py from src/aliquot/kubernetes/manifests: change it there.\n"
CRD_HEAD = (
    "# Made by tools/build_manifests.py from src/aliquot/kubernetes/virtual_machines/harvester: change it there.\n"
)


def manifests() -> dict[str, str]:
    """Return the files of deploy/kubernetes, deploy/kubernetes-machines, and the folder for clusters that keep the GPU
    Operator, whose namespace is not ours to delete.
    """
    beside = bundle.files(beside_operator())
    beside.pop("00-namespace")
    folders = {
        "kubernetes": bundle.files(Values()),
        "kubernetes-beside-operator": beside,
        "kubernetes-machines": bundle.vm_files(Values()),
    }
    return {f"{where}/{name}.yaml": _text(objects) for where, each in folders.items() for name, objects in each.items()}


def _text(objects: list[Object]) -> str:
    """Return the text of objects. Each begins with ``---``, so that files can be joined."""
    text = Text()
    return HEAD + "".join("---\n" + text.dump(text.annotate(item, object_comments(item))) for item in objects)


def definitions() -> dict[str, str]:
    """Return one file for each kind of Harvester's devices group. Helm creates the objects in crds/ if they do not
    exist, and never changes or deletes them afterwards.
    """
    made = {f"crds/{each['metadata']['name']}.yaml": CRD_HEAD + Text().dump(each) for each in crds.all_definitions()}
    return made | {f"helm/aliquot/{name}": text for name, text in made.items()}


def files() -> dict[str, str]:
    """Return every generated file below deploy/, by its path."""
    return definitions() | manifests() | {f"helm/aliquot/{name}": text for name, text in chart.files().items()}


def present() -> set[str]:
    found = [*DEPLOY.glob("crds/*"), *DEPLOY.glob("kubernetes*/**/*.yaml"), *(DEPLOY / "helm").rglob("*")]
    return {str(path.relative_to(DEPLOY)) for path in found if path.is_file()}


def main() -> int:
    wanted = files()
    extra = present() - set(wanted)
    if "--check" in sys.argv[1:]:
        stale = [n for n, text in wanted.items() if not (DEPLOY / n).is_file() or (DEPLOY / n).read_text() != text]
        lines = [f"differs: {name}" for name in stale] + [f"not made here: {name}" for name in sorted(extra)]
        print("\n".join(lines) or "deploy is current")
        return 1 if lines else 0
    for name in extra:
        (DEPLOY / name).unlink()
    for name, text in wanted.items():
        (DEPLOY / name).parent.mkdir(parents=True, exist_ok=True)
        (DEPLOY / name).write_text(text)
    print(f"wrote {len(wanted)} files")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
