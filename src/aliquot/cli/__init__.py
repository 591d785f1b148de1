"""Floor 4: the command line. This module stays empty of imports: ``--version`` must cost no more than Python itself."""

from __future__ import annotations


def main() -> int:
    """The ``aliquot`` command. Returns the exit code."""
    import sys

    if sys.argv[1:] in (["--version"], ["-V"]):
        from aliquot import __version__

        print(f"aliquot {__version__}")
        return 0
    raise NotImplementedError
