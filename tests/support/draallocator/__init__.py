"""The structured allocator of kube-scheduler for dynamic resource allocation, written a second time.

It predicts which devices a claim gets on a node, from the objects as the API shows them: ResourceSlices, DeviceClasses,
ResourceClaims, Nodes, Pods. The order is that of the real one: pools by driver and name, slices by object name, devices
as listed, the first full solution of an exhaustive search.

Decisions of a real kube-scheduler are recorded in ``tests/recorded/kube-scheduler``, and this package must agree with
all of them. Where release 1.36 departs from the documentation, this package does as well. Each such place is marked
with "Release 1.36".

It lacks consumable capacity, binding conditions and list attributes, and refuses their fields.
"""

from support.draallocator.claims import allocated_devices, extended_claim
from support.draallocator.pools import Device, Pool, gather
from support.draallocator.search import AllocationError, Published, allocate

__all__ = [
    "AllocationError",
    "Device",
    "Pool",
    "Published",
    "allocate",
    "allocated_devices",
    "extended_claim",
    "gather",
]
