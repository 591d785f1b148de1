"""The files of a simulated node in this process: Aliquot reads and writes them without a server."""

from __future__ import annotations

from aliquot.sim.kernel.tree import Tree
from aliquot.sim.session import SimSession


class InProcessFiles:
    """The Files port over a node in this process."""

    def __init__(self, tree: Tree, session: SimSession | None = None) -> None:
        self.tree = tree
        self._session = session or SimSession("", 0)

    def read(self, path: str) -> str:
        return self.tree.read(path).removesuffix("\n")

    def write(self, path: str, text: str) -> None:
        self.tree.write(path, text, self._session)

    def names(self, path: str) -> tuple[str, ...]:
        return self.tree.names(path)

    def link(self, path: str) -> str:
        return self.tree.link(path)

    def real(self, path: str) -> str:
        return self.tree.real(path)

    def exists(self, path: str) -> bool:
        return self.tree.exists(path)

    def claimed(self, path: str) -> bool:
        return self.tree.claimed(path)
