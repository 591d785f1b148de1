"""The port through which backends run the driver's programs. It is the engine's: a pod's programs plug in there too."""

from aliquot.engine.programs import Programs, Ran

__all__ = ["Programs", "Ran"]
