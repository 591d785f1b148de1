"""User commands that run around an apply: mig-parted's hooks, run as mig-parted runs them.

The environment is replaced, not extended: a hook's own variables, then the MIG_PARTED_* ones, which take precedence.
The first command that fails ends its list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from aliquot.errors import BlockedError

TIMEOUT_S = 1800.0


class HookCommand(Protocol):
    """A command in a hook's list."""

    @property
    def command(self) -> str: ...
    @property
    def args(self) -> Sequence[str]: ...
    @property
    def envs(self) -> Mapping[str, str]: ...
    @property
    def workdir(self) -> str: ...


class NoHooks:
    """An empty set of hooks."""

    def fire(self, name: str) -> None:
        return


class CommandHooks:
    """Runs the commands of a hooks file. ``environment`` holds the MIG_PARTED_* variables. With ``debug`` their output
    goes to stderr, else it is reported only if the command fails.
    """

    def __init__(
        self,
        hooks: Mapping[str, Sequence[HookCommand]],
        environment: Mapping[str, str],
        *,
        debug: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._hooks = hooks
        self._environment = environment
        self._debug = debug
        self._timeout_s = timeout_s

    def fire(self, name: str) -> None:
        for command in self._hooks.get(name, ()):
            self._run(name, command)

    def _run(self, name: str, command: HookCommand) -> None:
        import shutil

        from aliquot.foundation import bounded_process

        what = f"hook {name}: {' '.join([command.command, *command.args])}"
        # As in mig-parted, our PATH finds the program, but the program inherits no PATH.
        program = shutil.which(command.command) or command.command
        try:
            done = bounded_process.run(
                [program, *command.args],
                self._timeout_s,
                env={**command.envs, **self._environment},
                cwd=command.workdir or None,
                output="shown" if self._debug else "merged",
            )
        except TimeoutError as failure:
            raise _failed(f"{what} did not end within {self._timeout_s:.0f} s", "") from failure
        except OSError as failure:
            raise _failed(f"{what} cannot be run: {failure.strerror}", "") from failure
        if done.code:
            raise _failed(f"{what} ended with status {done.code}", done.out)


def _failed(brief: str, output: str) -> BlockedError:
    return BlockedError(
        brief,
        code="HOOK",
        details=tuple(output.splitlines()[-20:]),
        next_step="correct the command in the hooks file (use absolute paths: it inherits no PATH), then run it again",
    )
