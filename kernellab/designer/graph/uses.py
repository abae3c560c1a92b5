"""Which nodes of a graph use a value."""

from __future__ import annotations

from collections.abc import Container, Iterator

from kernellab.capture import Graph, Node
from kernellab.designer.frontend.views import VIEWS


class Uses:
    """The nodes of a graph by name, and the users of each value."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: dict[str, Node] = {n.name: n for n in graph.nodes}
        self.outputs = frozenset(ref.name for ref in graph.outputs)
        self._users: dict[str, list[str]] = {}
        for node in graph.nodes:
            for ref in node.refs():
                self._users.setdefault(ref.name, []).append(node.name)

    def users(self, name: str) -> list[str]:
        """Return the nodes that have the value as an operand, once for each time."""
        return self._users.get(name, [])

    def count(self, name: str) -> int:
        """Return how many operands of nodes are the value."""
        return len(self.users(name))

    def readers(self, name: str, through: Container[str] = ()) -> Iterator[str]:
        """Yield the nodes that compute with the value, through views of it and operations of ``through``."""
        visited, pending = {name}, [name]
        while pending:
            for user in self.users(pending.pop()):
                if user in visited:
                    continue
                visited.add(user)
                if self.nodes[user].aten in VIEWS or self.nodes[user].aten in through:
                    pending.append(user)
                else:
                    yield user

    def viewed(self, name: str) -> str:
        """Return the node whose values a view shows; the node itself if it is no view."""
        while self.nodes[name].aten in VIEWS:
            name = next(self.nodes[name].refs()).name
        return name

    def is_output(self, name: str) -> bool:
        """Return whether the value is an output of the graph itself or through views."""
        if name in self.outputs:
            return True
        return any(self.nodes[u].aten in VIEWS and self.is_output(u) for u in self.users(name))
