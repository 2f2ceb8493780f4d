"""Questions to those who can answer, such as the owners of lists: each goes to one rank, one answer comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .exchange import Exchange
from .own import OwnLists, by_peer


class Questions:
    """Entries sorted by who is asked; all members of the exchange make one together. NumPy or CuPy, as ``sort`` takes.

    The host reads once: how many go to each member.

    Args:
        exchange: the ranks.
        peers: member that each entry goes to, integers ``[n]``; the number of members where it goes to nobody.
        sort: entries by where they go: :func:`~.own.by_peer`, or that of a GPU's :class:`~.own.OwnLists`.

    Attributes:
        order: where each entry stood, those for member 0 first, ``int64[sent]``: answers arrive in this order.
        stayed: where those stood that go to nobody, ``int64[n - sent]``.
        send, receive: how many go to and come from each member, ``int64[P]``, on the host.
    """

    def __init__(self, exchange: Exchange, peers: Any, sort: Callable[..., Any] = by_peer) -> None:
        self._exchange = exchange
        order, counts = sort(peers, exchange.size)
        self.send = counts[: exchange.size]
        sent = int(self.send.sum())
        self.order, self.stayed = order[:sent], order[sent:]
        self.receive = exchange.sizes(self.send)

    @property
    def away(self) -> int:
        """Entries that go to other ranks."""
        return int(self.send.sum() - self.send[self._exchange.index])

    def ask(self, column: Any, kind: str = "ids") -> Any:
        """Send ``column[i]`` to the member that entry i goes to; what came here, member 0's first."""
        return self._exchange.all_to_all(kind, column[self.order], self.send, self.receive)

    def answer(self, kind: str, values: Any, width: int = 1) -> Any:
        """Send ``width`` values for each question that came here, in their order; answers to :attr:`order`."""
        return self._exchange.all_to_all(kind, values, self.receive * width, self.send * width)


def ask_owners(
    own: OwnLists, vertices: Any, columns: list[Any], answer: Callable[..., Any], kind: str, dtype: np.dtype
) -> tuple[Any, int]:
    """Ask the owner of each vertex; all ranks of the exchange call it together.

    Args:
        own: this rank's lists.
        vertices: original ids ``[n]``.
        columns: further arrays ``[n]`` that the owner needs.
        answer: at the owner: of vertices and the columns, one number each.
        kind: of the answers' traffic.
        dtype: of the answers.

    Returns:
        The answers ``[n]``, and how many of them came from other ranks.
    """
    asked = Questions(own.exchange, own.owners(vertices), own.by_peer)
    replies = answer(*(asked.ask(column) for column in (vertices, *columns))).astype(dtype, copy=False)
    found = asked.answer(kind, replies)
    out = own.xp.empty(vertices.size, dtype=dtype)
    if out.size:
        out[asked.order] = found
    return out, asked.away
