"""Run a command line: find the command, parse its options, run its module. Users never see a traceback."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from aliquot.errors import AliquotError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aliquot.cli.framework.parser import Args


def run(words: list[str]) -> int:
    """Run one command line. Return the exit code and never raise: every failure becomes a sentence on stderr."""
    from aliquot.cli.framework import error_output as failure
    from aliquot.cli.framework import streams

    group = failure.group(words)
    # A command lives for a tenth of a second and makes no garbage worth collecting; looking for it costs 5 % of that.
    collecting = gc.isenabled()
    gc.disable()
    try:
        code = _dispatch(words)
        streams.result("", end="")  # flushes what argparse may have printed
    except AliquotError as error:
        from aliquot.cli.framework.parser import typed_node

        failure.report(error, failure.wanted_format(words), typed_node(words))
        code = failure.exit_code(error, group)
    except KeyboardInterrupt as stop:
        failure.interrupted(words)
        code = 128 + getattr(stop, "number", 2)
    except SystemExit as stop:  # argparse, after it printed a verb's help
        code = stop.code if isinstance(stop.code, int) else 0
    except BrokenPipeError:
        # The reader has what it wanted (`| head`).
        streams.redirect_to_devnull()
        code = 141
    except Exception as exception:  # noqa: BLE001  (the face: a user never sees a traceback)
        failure.internal(exception, failure.wanted_format(words))
        code = 2 if group in failure.COMPATIBLE else 1
    finally:
        if collecting:
            gc.enable()
    return code


def _dispatch(words: list[str]) -> int:
    from aliquot.cli.command_table import ROOT
    from aliquot.cli.framework import parser as parse

    found = parse.find(ROOT, words)
    if found.version:
        from aliquot import __version__

        print(f"aliquot {__version__}")
        return 0
    if found.help_only or not found.command.module:
        from aliquot.cli.framework import help

        return help.show(found)
    args = parse.arguments(found)
    import_msgspec()
    from aliquot.cli.framework import verbosity

    run: Callable[[Args], int] = import_module(f"aliquot.cli.{found.command.module}").run
    try:
        with verbosity.applied(args):
            if getattr(args, "wait_for_lock", None) is None:
                return run(args)
            from aliquot.cli.framework.lock_wait import run_unlocked

            return run_unlocked(run, args)
    except AliquotError as error:
        if error.exit_code == UsageError.exit_code and not error.next_step:
            error.next_step = f"{args.prog} --help"
        raise


def import_msgspec() -> None:
    """Import msgspec without typing_extensions, which it prefers if it is installed: that import costs as much as
    starting Python, for names that ``typing`` has as well.
    """
    absent = "typing_extensions" not in sys.modules
    if absent:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import_module("msgspec")
    finally:
        if absent:
            del sys.modules["typing_extensions"]
