"""A strict stand-in for kube-apiserver: plain HTTP on loopback, everything in memory. See README.md."""

from support.standin.server import Standin

__all__ = ["Standin"]
