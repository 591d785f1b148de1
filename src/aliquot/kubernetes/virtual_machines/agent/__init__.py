"""The devices agent: one node's GPUs for virtual machines, kept as Harvester's objects wish.

One level-triggered loop: look, make the objects tell the truth, carry out one wish, look again.
"""
