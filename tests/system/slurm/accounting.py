"""Real accounting for a bed: slurmdbd of its release over a private MariaDB of this host.

Without mariadb-server's set-up script: the server makes its system tables from its own SQL, and checks no rights.
"""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

from .bed import Bed, until
from .release import ACCOUNTING, Release

SYSTEM_TABLES = Path("/usr/share/mysql/mysql_system_tables.sql")


def missing(release: Release) -> str:
    """Return why a release cannot have accounting here, or ""."""
    if not shutil.which("mariadbd", path="/usr/sbin:/usr/bin") or not SYSTEM_TABLES.exists():
        return "mariadbd is not installed: apt-get install mariadb-server-core"
    absent = [name for name in ACCOUNTING if not shutil.which(name, path=release.path)]
    hint = "make slurm-trixie" if release.chrooted else "apt-get install slurmdbd slurm-wlm-mysql-plugin"
    return f"Slurm {release.name} has no {absent[0]} here: {hint}" if absent else ""


class Accounting:
    """MariaDB and slurmdbd inside a bed's machine. They end with it."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self._folder = bed.folder / "db"
        (self._folder / "data").mkdir(parents=True)
        self._mariadb()
        self._settings()
        self.start()

    def _mariadb(self) -> None:
        self._bootstrap(f"create database mysql;\nuse mysql;\n{SYSTEM_TABLES.read_text()}")
        self._serve()

    @property
    def _server(self) -> tuple[str, ...]:
        outside = ("outside",) if self.bed.release.chrooted else ()
        return (*outside, "mariadbd", "--no-defaults", "--user=root", f"--datadir={self._folder}/data")

    def _bootstrap(self, statements: str) -> None:
        """Run SQL while no server has the data."""
        made = self.bed.run(*self._server, "--bootstrap", stdin=statements)
        assert made.code == 0, made.err[-2000:]

    def _serve(self) -> None:
        listening = self._folder / "socket"
        listening.unlink(missing_ok=True)
        self.bed.start(
            "mariadbd",
            *(*self._server, f"--socket={listening}", f"--port={self.bed.ports.of('mariadb')}"),
            *("--bind-address=127.0.0.1", "--skip-grant-tables", f"--pid-file={self._folder}/pid"),
            *("--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0"),
        )
        until(listening.exists, lambda: f"mariadbd does not listen: {self.bed.log('mariadbd')[-2000:]}")

    def change(self, statements: str) -> None:
        """Change what slurmdbd has recorded, by SQL."""
        for name in ("slurmdbd", "mariadbd"):
            self.bed.stop(name)
        self._bootstrap(f"use slurm;\n{statements}")
        self._serve()
        self.start()

    def _settings(self) -> None:
        bed = self.bed
        path = bed.etc / "slurmdbd.conf"
        path.write_text(f"""AuthType=auth/munge
AuthInfo=socket={bed.folder}/munge/socket
DbdHost={bed.host}
DbdAddr=127.0.0.1
DbdPort={bed.ports.of("slurmdbd")}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={bed.ports.of("mariadb")}
StorageUser=root
StorageLoc=slurm
PidFile={bed.folder}/run/slurmdbd.pid
""")
        path.chmod(0o600)

    def start(self) -> None:
        """Start slurmdbd and wait until it listens."""
        daemon = self.bed.start("slurmdbd", "slurmdbd", "-D")

        def listens() -> bool:
            with socket.socket() as connection:
                return connection.connect_ex(("127.0.0.1", self.bed.ports.of("slurmdbd"))) == 0

        until(lambda: daemon.poll() is not None or listens(), lambda: f"slurmdbd: {self.bed.log('slurmdbd')[-2000:]}")
        assert daemon.poll() is None, self.bed.log("slurmdbd")[-2000:]

    def lines(self, *tres: str) -> str:
        """Return the lines of slurm.conf that use it and count these TRES."""
        return (
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={self.bed.ports.of('slurmdbd')}\n"
            f"AccountingStoragePass={self.bed.folder}/munge/socket\n"
            + (f"AccountingStorageTRES={','.join(tres)}\n" if tres else "")
        )
