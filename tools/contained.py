"""Run a command so that no process outlives it, whatever it starts and however it ends.

Usage: python tools/contained.py [--budget CPU,WALL,MOST] COMMAND [WORD ...]

The command runs in a PID namespace of its own. Its first process ends with the command, and with this program, also
after SIGKILL. The kernel then ends every other process of the namespace: daemons, servers, containers. Without root
the namespace belongs to a user namespace with the same user. If the kernel refuses namespaces, the command runs
without, and a line on stderr reports it.

With a budget, the last line compares the CPU seconds of all those processes and the wall time with it, and above MOST
CPU seconds the run has failed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_NEW_MOUNTS, _NEW_USER, _NEW_PIDS = 0x20000, 0x10000000, 0x20000000
_RECURSIVELY, _PRIVATE = 0x4000, 0x40000
_END_WITH_PARENT = 1


class Budget(NamedTuple):
    """Limits in seconds: the CPU and wall time that a run should not exceed, and the CPU time above which it fails."""

    cpu: float
    wall: float
    most: float


def main(words: Sequence[str]) -> int:
    """Run the command, and return its exit code."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_NEW_PIDS | _NEW_MOUNTS | (_NEW_USER if user else 0)):
        why = os.strerror(ctypes.get_errno())
        print(f"no PID namespace can be made here ({why}): processes may outlive this run", file=sys.stderr)
        return _contained(words)
    if user:
        for name, text in (("uid_map", f"{user} {user} 1"), ("setgroups", "deny"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text)
    first = os.fork()
    if first == 0:
        libc.prctl(_END_WITH_PARENT, signal.SIGKILL)
        code = 1
        try:
            libc.mount(None, b"/", None, _RECURSIVELY | _PRIVATE, None)
            if libc.mount(b"proc", b"/proc", b"proc", 0, None):
                why = os.strerror(ctypes.get_errno())
                print(
                    f"/proc of the new PID namespace cannot be mounted ({why}): it shows the one above", file=sys.stderr
                )
            code = _contained(words)
        except BaseException:  # noqa: BLE001 - printed as the interpreter prints it
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            os._exit(code)
    _pass_on(first)
    return _exit_code(os.waitpid(first, 0)[1])


def _pass_on(pid: int | None) -> None:
    """Forward the signals that end this process to another one. A terminal also signals the command itself."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _nothing if pid is None else lambda number, frame: os.kill(pid, number))
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, _nothing)


def _exit_code(status: int) -> int:
    """Return the exit code as a shell reports it: 128 plus the number of the signal that ended a process."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _contained(words: Sequence[str]) -> int:
    """Start the command, collect every orphan, and return the command's exit code."""
    budget = Budget(*map(float, words[1].split(","))) if words[0] == "--budget" else None
    began = time.monotonic()
    # Handlers: the command would inherit SIG_IGN, also from a script that starts a job in its background.
    _pass_on(None)
    command = subprocess.Popen(words[2:] if budget else words)
    _pass_on(command.pid)
    while True:
        pid, status = os.wait()
        if pid == command.pid:
            break
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:  # an ended process that the command left behind: it counts
            pass
    over = budget is not None and _compare(budget, time.monotonic() - began)
    return _exit_code(status) or int(over)


def _compare(budget: Budget, wall: float) -> bool:
    """Print the used time, and return whether it exceeds the limit."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # of all ended processes, because orphans are collected here
    cpu = used.ru_utime + used.ru_stime
    over = cpu > budget.most
    within = cpu <= budget.cpu and wall <= budget.wall
    verdict = f"FAILED: more than {budget.most:.0f} CPU s" if over else "within" if within else "ABOVE"
    print(f"budget: {cpu:.0f} of {budget.cpu:.0f} CPU s, {wall:.0f} of {budget.wall:.0f} s: {verdict}", flush=True)
    return over


def _nothing(number: int, frame: object) -> None:
    """Ignore the signal."""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
