"""Node agent that applies the label `nvidia.com/mig.config`, or `nvidia.com/vgpu.config` on a node for VMs, and its
part of the cluster controller.
"""
