"""The command line. Only ``sys`` is imported here: ``--version`` costs no more than Python itself."""

import sys


def main(argv: list[str] | None = None) -> int:
    """Run the ``aliquot`` command. Return the exit code; ``docs/cli.md`` lists the codes."""
    words = sys.argv[1:] if argv is None else argv
    if words in (["--version"], ["-V"]):
        from aliquot import __version__

        print(f"aliquot {__version__}")
        return 0
    from aliquot.cli.framework.dispatch import run

    return run(words)


def program() -> None:
    """Run ``main`` as a process. Never returns.

    Everything is closed and flushed by then. Finalizing the interpreter, module by module, would cost as much again as
    starting it; the operating system does it at once.
    """
    code = main()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue  # closed by the caller or the reader: the exit code still reports the failure
    import os

    os._exit(code)
