"""Run the guest, and print its output. ``prepare`` downloads its kernel and builds its module instead."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from system.vm import kernel, machine


def main(words: list[str]) -> int:
    """Return 0, or 1 if something is missing or a check failed."""
    try:
        if words == ["prepare"]:
            print(f"the guest's kernel: {kernel.prepare(kernel.cache()).image}")
            return 0
        if machine.missing():
            raise kernel.MissingError(machine.missing())
        return _boot(kernel.ready(kernel.cache()))
    except kernel.MissingError as error:
        print(error, file=sys.stderr)
        return 1


def _boot(made: kernel.Kernel) -> int:
    failed: list[str] = []

    def hear(event: machine.Event) -> None:
        if "check" in event:
            word = "passed" if event["ok"] else "FAILED"
            print(f"{event['at']:6} {word} {event['check']} in {event['seconds']} s  {event['said']}", flush=True)
            if not event["ok"]:
                print(event["why"], flush=True)
                failed.append(event["check"])
        else:
            print(f"{event['at']:6} {event}", flush=True)

    with tempfile.TemporaryDirectory(prefix="aliquot-vm-") as folder:
        try:
            machine.run(made, Path(folder), hear)
        except machine.SilentError as error:
            print(error, file=sys.stderr)
            return 1
        if failed:
            print(machine.tail(Path(folder) / "console"))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
