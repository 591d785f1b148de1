"""The devices agent: it keeps a node's GPUs for VMs as Harvester's objects request.

It is a level-triggered loop: observe, update the objects, apply one GPU's desired state, observe again.
"""
