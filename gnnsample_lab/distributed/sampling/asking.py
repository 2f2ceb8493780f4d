"""Questions to those who can answer, such as the owners of lists: each goes to one rank, one answer comes back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .cpu.base import by_owner
from .exchange import Exchange
from .layout import Layout


class Questions:
    """Entries sorted by who is asked; all members of the exchange make one together. Host arrays.

    Args:
        exchange: the ranks.
        peers: member that each entry goes to, integers ``[n]``.

    Attributes:
        order: where each entry stood, those for member 0 first, ``int64[n]``: answers arrive in this order.
        send, receive: how many go to and come from each member, ``int64[P]``.
    """

    def __init__(self, exchange: Exchange, peers: np.ndarray) -> None:
        sorted_ = by_owner(peers, peers, exchange.size)
        self._exchange, self.order, self.send = exchange, sorted_.order, sorted_.counts
        self.receive = exchange.sizes(self.send)

    def ask(self, column: np.ndarray, kind: str = "ids") -> np.ndarray:
        """Send ``column[i]`` to the member that entry i goes to; what came here, member 0's first."""
        found: np.ndarray = self._exchange.all_to_all(kind, column[self.order], self.send, self.receive)
        return found

    def answer(self, kind: str, values: np.ndarray, width: int = 1) -> np.ndarray:
        """Send ``width`` values for each question that came here, in their order; answers to :attr:`order`."""
        found: np.ndarray = self._exchange.all_to_all(kind, values, self.receive * width, self.send * width)
        return found


def ask_owners(
    layout: Layout,
    vertices: np.ndarray,
    columns: list[np.ndarray],
    answer: Callable[..., np.ndarray],
    kind: str,
    dtype: np.dtype,
) -> np.ndarray:
    """Ask the owner of each vertex; all ranks of the exchange call it together.

    Args:
        layout: parts and ranks.
        vertices: original ids ``[n]``.
        columns: further arrays ``[n]`` that the owner needs.
        answer: at the owner: of vertices and the columns, one number each.
        kind: of the answers' traffic.
        dtype: of the answers.
    """
    asked = Questions(layout.exchange, layout.partition.owner[vertices])
    replies = answer(*(asked.ask(column) for column in (vertices, *columns))).astype(dtype, copy=False)
    out = np.empty(vertices.size, dtype=dtype)
    out[asked.order] = asked.answer(kind, replies)
    return out
