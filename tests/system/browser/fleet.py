"""The script of ``make dashboard`` on a free port, and commands that are typed beside the page."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from support import forkserver
from system.dashboard.program import SOURCE, environment

SCRIPT = Path(SOURCE).parent / "scripts" / "dashboard.sh"
START_S = 180.0


class Environment:
    """A small simulated fleet with its page: ``url`` is its address, ``token`` logs in."""

    def __init__(self, folder: Path) -> None:
        programs = folder / "bin"
        programs.mkdir(parents=True)
        command = programs / "aliquot"
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(forkserver.python())} -m aliquot "$@"\n')
        command.chmod(0o755)
        paths = {"PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(folder)}
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("w") as out, self._err.open("w") as err:
            self._process = subprocess.Popen(
                ["sh", str(SCRIPT), "--listen", "127.0.0.1:0"],
                env=environment(folder, **paths),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._folder = folder
        self.url = self._reported(self._out, r"(http://[\d.:]+)/login")
        self.token = self._reported(self._err, r"with the token (\S+)")

    def _reported(self, file: Path, pattern: str) -> str:
        deadline = time.monotonic() + START_S
        while (found := re.search(pattern, file.read_text())) is None:
            assert self._process.poll() is None, self._err.read_text()
            assert time.monotonic() < deadline, self._err.read_text()
            time.sleep(0.05)
        return found[1]

    @property
    def state(self) -> Path:
        """State directory of the fleet."""
        (found,) = self._folder.glob("aliquot-fleet.*")
        return found

    def aliquot(self, *words: str) -> str:
        """Run a command beside the page and return its output. The command must succeed."""
        ran: subprocess.CompletedProcess[str] = forkserver.run(
            [sys.executable, "-m", "aliquot", *words],
            env=environment(self.state),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def cut(self, node: str, gpu: int, mig: str) -> None:
        self.aliquot("apply", "--sim", node, "--gpu", str(gpu), "--mig", mig)

    def __enter__(self) -> Environment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the script as Ctrl-C does: all foreground processes get the signal. It must leave no state behind."""
        os.killpg(self._process.pid, signal.SIGINT)
        try:
            self._process.wait(60)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        if error is None:
            assert not list(self._folder.glob("aliquot-fleet.*")), "the script leaves its state behind"
            assert "Traceback" not in self._err.read_text()
