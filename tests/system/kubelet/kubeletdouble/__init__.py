"""A kubelet for tests, as far as devices go: real gRPC over unix sockets, with Google's library instead of ours.

It does what kubelet 1.36 does with a device plugin (derived from its behaviour):

- It validates the registration, dials back, asks for options, and follows ListAndWatch.
- It keeps a checkpoint, and admits pods by GetPreferredAllocation and Allocate.
- It reports over pod resources which pod has which devices.
- It marks the devices of a plugin that is gone unhealthy, and forgets the plugin after a grace time.
- It wipes the directory when it starts.

It does not schedule. A ``runner`` may start containers.
"""

from system.kubelet.kubeletdouble.kubelet import Kubelet
from system.kubelet.kubeletdouble.pods import AdmissionError, Claimed, Container, Pod, Runner, RunOptions

__all__ = ["AdmissionError", "Claimed", "Container", "Kubelet", "Pod", "RunOptions", "Runner"]
