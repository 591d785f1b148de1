"""The complete sample objects of Harvester's documents, and how ours are compared with them.

Sources: harvester/harvester, enhancements 20231103-vgpu-support and 20250908-mig-vgpu-support; Harvester's manual 1.4,
"vGPU support". In one sample of the first an SRIOVGPUDevice lists its functions and has ``enabled: false``: it is
compared with an enabled one, as the manual has it.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import yaml

JSON = dict[str, Any]
ADDITIONS = ("conditions", "observedGeneration", "appliedBoot", "differences")
"""Fields of a status that are ours, in all kinds. These objects have no other fields of ours."""
STAMPED = ("creationTimestamp", "generation", "resourceVersion", "uid", "managedFields")
"""Fields that a server stamps on an object."""
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

GLOB = "00.4 00.5 01.6 01.7 02.0 02.1 02.2 02.3 00.6 00.7 01.0 01.1 01.2 01.3 01.4 01.5"
"""virtfn0, virtfn1, virtfn10 ... virtfn15, virtfn2 ... virtfn9 of the GPU 0000:08:00.0."""


def comparable(body: JSON) -> JSON:
    """Return an object without stamps, our additions and unique values: each UUID reads ``(uuid)``."""
    found = copy.deepcopy(body)
    meta = {key: value for key, value in found["metadata"].items() if key not in STAMPED}
    for owner in meta.get("ownerReferences", ()):
        owner["uid"] = "(uuid)"
    status = {key: value for key, value in found.pop("status", {}).items() if key not in ADDITIONS}
    if "uuid" in status:
        assert UUID.fullmatch(status["uuid"]), status
        status["uuid"] = "(uuid)"
    return {**found, "metadata": meta} | ({"status": status} if status else {})


def sample(text: str) -> JSON:
    return comparable(yaml.safe_load(text))


def gpu(node: str, *, enabled: bool) -> JSON:
    """Return a GPU before or after its virtual functions are enabled."""
    lists = ""
    if enabled:
        rows = [f"0000:08:{at}" for at in GLOB.split()]
        names = [f"{node}-000008{at.replace('.', '')}" for at in GLOB.split()]
        lists = yaml.safe_dump({"status": {"vfAddresses": rows, "vGPUDevices": names}})
    return sample(f"""
apiVersion: devices.harvesterhci.io/v1beta1
kind: SRIOVGPUDevice
metadata:
  creationTimestamp: "2023-11-03T03:47:42Z"
  generation: 8
  labels:
    nodename: {node}
  name: {node}-000008000
  resourceVersion: "29445307"
  uid: 18e89637-73d9-4bed-9f5c-68739c336b27
spec:
  address: "0000:08:00.0"
  enabled: {str(enabled).lower()}
  nodeName: {node}
{lists}""")


FREE = """
apiVersion: devices.harvesterhci.io/v1beta1
kind: VGPUDevice
metadata:
  creationTimestamp: "2023-11-28T00:41:14Z"
  generation: 1
  labels:
    harvesterhci.io/parentSRIOVGPUDevice: harvester-82cd7-000008000
    nodename: harvester-82cd7
  name: harvester-82cd7-000008021
  resourceVersion: "40796789"
  uid: c724275b-f6a3-4414-a28c-29f0adabad8d
spec:
  address: "0000:08:02.1"
  enabled: false
  nodeName: harvester-82cd7
  parentGPUDeviceAddress: "0000:08:00.0"
  vGPUTypeName: ""
status:
  availableTypes:
    NVIDIA A2-2A: nvidia-750
    NVIDIA A2-2B: nvidia-743
    NVIDIA A2-2Q: nvidia-745
    NVIDIA A2-4A: nvidia-751
    NVIDIA A2-4C: nvidia-754
    NVIDIA A2-4Q: nvidia-746
    NVIDIA A2-8A: nvidia-752
    NVIDIA A2-8C: nvidia-755
    NVIDIA A2-8Q: nvidia-747
    NVIDIA A2-16A: nvidia-753
    NVIDIA A2-16C: nvidia-756
    NVIDIA A2-16Q: nvidia-748
    NVIDIA A2-1A: nvidia-749
    NVIDIA A2-1B: nvidia-742
    NVIDIA A2-1Q: nvidia-744
"""
BESIDE_AN_8Q = FREE.partition("    NVIDIA A2-2A")[0] + (
    "    NVIDIA A2-8A: nvidia-752\n    NVIDIA A2-8C: nvidia-755\n    NVIDIA A2-8Q: nvidia-747\n"
)
CONFIGURED = """
apiVersion: devices.harvesterhci.io/v1beta1
kind: VGPUDevice
metadata:
  creationTimestamp: "2023-11-28T00:41:11Z"
  generation: 4
  labels:
    harvesterhci.io/parentSRIOVGPUDevice: harvester-82cd7-000008000
    nodename: harvester-82cd7
  name: harvester-82cd7-000008004
  resourceVersion: "40799301"
  uid: 8897c831-a5dc-4820-8110-75378c4c6cc1
spec:
  address: "0000:08:00.4"
  enabled: true
  nodeName: harvester-82cd7
  parentGPUDeviceAddress: "0000:08:00.0"
  vGPUTypeName: NVIDIA A2-8Q
status:
  configureVGPUTypeName: NVIDIA A2-8Q
  uuid: 5b5b7326-6bb8-48cb-a321-8fa58ccbb38c
  vGPUStatus: vGPUConfigured
"""
CONFIGURED_4A = (
    CONFIGURED.replace("harvester-82cd7", "harvester-kgd9c")
    .replace("A2-8Q", "A2-4A")
    .replace("5b5b7326-6bb8-48cb-a321-8fa58ccbb38c", "dd6772a8-7db8-4e96-9a73-f94c389d9bc3")
)
COLUMNS = ["NAME", "ADDRESS", "NODE NAME", "ENABLED", "UUID", "VGPUTYPE", "PARENTGPUDEVICE"]
ALLOCATABLE = {"nvidia.com/NVIDIA_A2-4A": "2", "nvidia.com/NVIDIA_A2-4C": "0", "nvidia.com/NVIDIA_A2-4Q": "2"}
"""The status of a node where a 4C was configured once, and where the four vGPUs are now two 4A and two 4Q."""


def table(node: str, carried: dict[str, str]) -> list[list[str]]:
    """Return the rows of ``kubectl get vgpudevices``, sorted by name, in cells. ``carried`` maps function to type."""
    rows = [COLUMNS]
    for at in sorted(GLOB.split()):
        name = f"{node}-000008{at.replace('.', '')}"
        kind = carried.get(at, "")
        rows.append(
            [name, f"0000:08:{at}", node, str(bool(kind)).lower(), "(uuid)" if kind else "", kind, "0000:08:00.0"]
        )
    return rows


def printed(text: str) -> list[list[str]]:
    """Parse kubectl's output by the positions of the columns. A UUID reads ``(uuid)``."""
    lines = text.splitlines()
    starts = [match.start() for match in re.finditer(r"(?<!\S)\S+(?: \S+)*", lines[0])]
    cells = [[line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)] for line in lines]
    return [["(uuid)" if UUID.fullmatch(cell) else cell for cell in row] for row in cells]


MIG = """
apiVersion: devices.harvesterhci.io/v1beta1
kind: MigConfiguration
metadata:
  creationTimestamp: "2025-08-28T02:28:19Z"
  generation: 2
  name: dell-190-tink-system-000004000
  ownerReferences:
  - apiVersion: devices.harvesterhci.io/v1beta1
    kind: SRIOVGPUDevice
    name: dell-190-tink-system-000004000
    uid: 61036ecb-086d-45a5-8392-7f911857f8de
  resourceVersion: "8912539"
  uid: 29621561-fb8c-4620-97b1-b6b0ab8397b4
spec:
  enabled: true
  gpuAddress: "0000:04:00.0"
  nodeName: dell-190-tink-system
  profileSpec:
  - {id: 19, name: MIG 1g.5gb, requested: 6}
  - {id: 20, name: MIG 1g.5gb+me, requested: 1}
  - {id: 15, name: MIG 1g.10gb, requested: 0}
  - {id: 14, name: MIG 2g.10gb, requested: 0}
  - {id: 9, name: MIG 3g.20gb, requested: 0}
  - {id: 5, name: MIG 4g.20gb, requested: 0}
  - {id: 0, name: MIG 7g.40gb, requested: 0}
status:
  profileStatus:
  - {available: 0, id: 19, name: MIG 1g.5gb, total: 7, vGPUID: ["7", "8", "9", "11", "12", "13"]}
  - {available: 0, id: 20, name: MIG 1g.5gb+me, total: 1, vGPUID: ["10"]}
  - {available: 0, id: 15, name: MIG 1g.10gb, total: 4}
  - {available: 0, id: 14, name: MIG 2g.10gb, total: 3}
  - {available: 0, id: 9, name: MIG 3g.20gb, total: 2}
  - {available: 0, id: 5, name: MIG 4g.20gb, total: 1}
  - {available: 0, id: 0, name: MIG 7g.40gb, total: 1}
  status: synced
"""
