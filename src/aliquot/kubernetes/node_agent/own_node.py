"""Informer of the agent's own Node, one for all roles of its process."""

from __future__ import annotations

from collections.abc import Callable

from aliquot.foundation.logfmt import agent_log
from aliquot.kubernetes.client.errors import ApiError
from aliquot.kubernetes.client.informer import Changed, Informer, Key
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.client.watch import DEFAULT_TIMING, ErrorListener


class OwnNode(Informer[Node]):
    """Informer of the Node ``name``. Each role listens to the parts of the node that matter to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._listeners: list[_Listener] = []
        super().__init__(
            Node,
            self._notify,
            name=name,
            relevant_part=lambda node: [listener.relevant_part(node) for listener in self._listeners],
            timing=DEFAULT_TIMING,
            report=self._report_to_all,
            log=agent_log,
        )

    @property
    def node(self) -> Node | None:
        """The node; None if it is not read yet, or does not exist."""
        return self.get(self.name)

    def listen(
        self, changed: Changed, relevant_part: Callable[[Node], object], report: ErrorListener | None = None
    ) -> None:
        """Call ``changed`` when this part of the node has changed, except by this process's own writes.

        With ``report``, failures go to it. Else ``changed`` is also called when the node becomes readable or
        unreadable.
        """
        self._listeners.append(_Listener(changed, relevant_part, report))

    def record_write(self, previous: Node | None, written: Node) -> None:
        """Take over the response to a write of any role. A change back to the former value is then news again."""
        super().record_write(previous, written)
        for listener in self._listeners:
            listener.settle(self.node)

    def log_availability(self) -> None:
        if not any(listener.report for listener in self._listeners):
            super().log_availability()

    def _notify(self, keys: set[Key]) -> None:
        node = self.node
        for listener in self._listeners:
            listener.notify(keys, node)

    def _report_to_all(self, error: ApiError | None) -> None:
        self.note_failure(error)
        for listener in self._listeners:
            if listener.report is not None:
                listener.report(error)


class _Listener:
    """A role that listens. ``report`` gets the failures of the watch."""

    def __init__(self, changed: Changed, relevant_part: Callable[[Node], object], report: ErrorListener | None) -> None:
        self._changed = changed
        self.relevant_part = relevant_part
        self.report = report
        self._last: object = _UNREAD

    def notify(self, keys: set[Key], node: Node | None) -> None:
        """Tell the role that something changed, if it concerns its part. ``node`` is None if it does not exist."""
        if self.settle(node) or not (keys or self.report):
            self._changed(keys)

    def settle(self, node: Node | None) -> bool:
        """Take over the role's part of the node. Report whether it is another one."""
        part = (node.metadata.uid, self.relevant_part(node)) if node is not None else None
        news, self._last = part != self._last, part
        return news


_UNREAD = object()
