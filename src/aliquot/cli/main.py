"""The command line. Only ``sys`` is imported here: ``--version`` must cost no more than Python itself."""

import sys


def main(argv: list[str] | None = None) -> int:
    """The ``aliquot`` command. Returns the exit code; the meaning of each code is in ``docs/cli.md``."""
    words = sys.argv[1:] if argv is None else argv
    if words in (["--version"], ["-V"]):
        from aliquot import __version__

        print(f"aliquot {__version__}")
        return 0
    from aliquot.cli.framework.dispatch import run

    return run(words)


def program() -> None:
    """``main`` as a process of its own. Never returns.

    Everything is closed and flushed by then. Taking the interpreter apart, module by module, would cost as much again
    as starting it; the operating system does it at once.
    """
    code = main()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue  # closed by the caller, or nobody reads any more: the exit code still tells
    import os

    os._exit(code)
