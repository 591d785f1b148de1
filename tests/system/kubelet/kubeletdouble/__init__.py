"""A kubelet for tests, as far as devices go: real gRPC over unix sockets, by Google's library rather than by ours.

It does what kubelet 1.36 does with a device plugin (read off its behaviour): validates the registration, dials back,
asks for options, follows ListAndWatch, keeps a checkpoint, admits pods by GetPreferredAllocation and Allocate, tells
who has what over pod resources, marks the devices of a plugin that is gone unhealthy, forgets it after a grace time,
and wipes the directory when it starts. It does not schedule; a ``runner`` may start containers.
"""

from system.kubelet.kubeletdouble.kubelet import Kubelet
from system.kubelet.kubeletdouble.pods import AdmissionError, Claimed, Container, Pod, Runner, RunOptions

__all__ = ["AdmissionError", "Claimed", "Container", "Kubelet", "Pod", "RunOptions", "Runner"]
