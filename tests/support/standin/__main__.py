"""Run the stand-in for people and scripts: ``python -m support.standin --port 8001 --kubeconfig /tmp/kubeconfig``."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

from support.standin.kubeconfig import kubeconfig
from support.standin.server import Standin


def main() -> None:
    parser = argparse.ArgumentParser(prog="standin", description="A stand-in for kube-apiserver, in memory.")
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--kubeconfig", type=Path, help="write the administrator's access here")
    options = parser.parse_args()
    standin = Standin(options.port).start()
    if options.kubeconfig:
        options.kubeconfig.write_text(kubeconfig(standin.url, standin.admin, ca=str(standin.ca)))
        options.kubeconfig.chmod(0o600)
        print(f"export KUBECONFIG={options.kubeconfig}", flush=True)
    print(f"{standin.url}  (Ctrl-C ends it)", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    standin.close()


if __name__ == "__main__":
    main()
