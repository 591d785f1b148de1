"""The kernel of a simulated node: the parts of ``/sys``, ``/proc`` and ``/dev`` that show GPUs and their sharing with
VMs, and NVIDIA's vGPU host driver. Based on its documented behaviour and captured listings; it shares no rule with the
planner.
"""
