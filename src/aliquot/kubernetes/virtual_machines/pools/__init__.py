"""Pools of vGPUs: the VGPUDevices that a VGPUPool enables. The node agents then create the vGPUs."""
