"""The kernel of a simulated node: the part of ``/sys``, ``/proc`` and ``/dev`` that GPUs and their sharing with virtual
machines show, and NVIDIA's vGPU host driver behind it. Written from its documented behaviour and captured listings; it
shares no rule with the planner.
"""
