"""Collectives of the ladder: the only place that calls them, so that every byte between ranks is counted once.

Arrays are NumPy on Gloo ranks. On NCCL ranks they are CuPy, and what comes back is CuPy; NumPy arrays are staged
through the GPU. :meth:`Exchange.all_to_all_tensors` takes torch tensors as they are, also inside a capture.

The distributed engine is torch's: process groups, NCCL communicators, rendezvous. No transport stands beside it. But
torch checks, records and watches each collective, which takes the host some 50 us, and a hop of collective sampling
takes the GPU less. So :meth:`Exchange.connect` finds whether messages can go by address, through ``ncclSend`` and
``ncclRecv`` on torch's own communicator, and whether sizes, which each host must read in any case, can pass from host
to host through memory that they share. Where torch does not give its communicator away or ranks are on several hosts,
and with ``collectives="torch"``, torch's collectives carry everything; the suite ``ladder`` measures both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gnnsample_lab.checks import is_cuda_array
from gnnsample_lab.distributed.ranks.rank import Rank

from .mailbox import Mailbox
from .nccl import Message, Nccl
from .traffic import Traffic


class Exchange:
    """Collectives among some ranks of a world: those that hold the parts between them.

    Attributes:
        group: torch's process group of these ranks.
        members: these ranks in the world's numbering, ascending: entry p holds part p.
        index: place of this rank in ``members``: its part.
        size: how many they are.
        traffic: where bytes are counted; replaced for each call of the sampler.
        nccl: messages by address, after :meth:`connect`; None where there is no such way.
        mailbox: small numbers between hosts' threads, after :meth:`connect`; None where ranks share no memory.
    """

    def __init__(self, rank: Rank, group: Any, members: Sequence[int], hosts: Sequence[int]) -> None:
        self.rank, self.group, self.members = rank, group, np.array(sorted(members), dtype=np.int64)
        self.index, self.size = int(np.searchsorted(self.members, rank.index)), len(members)
        self._hosts = np.asarray(hosts, dtype=np.int64)
        self.traffic = self.new_traffic()
        self.nccl: Nccl | None = None
        self.mailbox: Mailbox | None = None

    def connect(self) -> None:
        """Find ways that are quicker than torch's calls, the same on all members; all of them call it."""
        if self.size == 1 or self.nccl or self.mailbox:
            return
        if len(set(self._hosts[self.members].tolist())) == 1:
            self.mailbox = Mailbox.among(self, self.rank.timeout_s)
        if self.rank.backend != "nccl":
            return
        self.max("flags", np.zeros(1))  # connects the communicator, which the next line asks for
        found = Nccl.of(self.group, self.size)
        if self.max("flags", np.array([found is None]))[0]:
            return
        assert found is not None
        if not self.max("flags", np.array([not self._carries(found)]))[0]:
            self.nccl = found

    def _carries(self, nccl: Nccl) -> bool:
        """Whether a number for each member arrives."""
        import cupy

        given = cupy.arange(self.size, dtype=np.int64) + self.size * self.index
        out = cupy.full(self.size, -1, dtype=np.int64)
        others = [p for p in range(self.size) if p != self.index]
        sends, receives = ([(p, array.data.ptr + 8 * p, 8) for p in others] for array in (given, out))
        try:
            nccl.exchange(sends, receives, cupy.cuda.get_current_stream().ptr)
        except RuntimeError:
            return False
        return all(
            n == self.size * p + self.index for p, n in enumerate(out.get().tolist()) if p != self.index
        )

    def new_traffic(self) -> Traffic:
        """An empty count for this rank."""
        return Traffic(self.rank.index, self._hosts)

    # ---- arrays -----------------------------------------------------------------------------------------------

    def sizes(self, counts: Any) -> np.ndarray:
        """Tell every member one number, below ``2**32``: ``int64[P]`` each way (8 bytes a peer)."""
        counts = np.asarray(counts, dtype=np.int64)
        if self.mailbox is not None:
            found = counts.copy()
            self.mailbox.tell(counts.tolist())
            for p in range(self.size):
                if p != self.index:
                    found[p] = self.mailbox.hear(p)
            self._count("sizes", np.full(self.size, 8), np.full(self.size, 8))
            return found
        each = np.ones(self.size, int)
        return np.asarray(self.all_to_all("sizes", counts, each, each))

    def all_to_all(
        self, kind: str, values: Any, send: Any, receive: Any, used: tuple[Any, Any] | None = None, out: Any = None,
    ) -> Any:  # fmt: skip
        """Send ``send[p]`` entries of ``values``, one after another, to each member p; all members call it.

        Args:
            kind: of traffic.
            values: one-dimensional, the entries for member 0 first.
            send, receive: entries by member, integers ``[P]``; what others send is known.
            used: for buffers of fixed size, how many of the entries sent, and a function that tells from what was
                received how many of those, mean something, integers ``[P]``; the others are counted as padding.
            out: where the entries received go, in order and of the dtype of ``values``, CuPy; None: to memory of
                their own. Not with ``used``.

        Returns:
            The entries received, member 0's first, of the same dtype.
        """
        send, receive = np.asarray(send, dtype=np.int64), np.asarray(receive, dtype=np.int64)
        if self.size == 1:  # nothing leaves the rank, and a collective of one is a copy
            return _into(out, values)
        if self.nccl is not None and used is None and is_cuda_array(values):
            return self._by_address(kind, values, send, receive, out)
        given, back = self._tensor(values)
        into = given.new_empty(int(receive.sum())) if out is None else self._tensor(out)[0]
        if used is None:
            self.all_to_all_tensors(kind, into, given, receive, send)
            return back(into) if out is None else out
        self.all_to_all_tensors(None, into, given, receive, send)
        found, width = back(into), values.dtype.itemsize
        filled = np.asarray(used[0]), np.asarray(used[1](found))
        for name, sent, got in ((kind, *filled), ("padding", send - filled[0], receive - filled[1])):
            self.traffic.send(name, self.members, sent * width, is_message=False)
            self.traffic.receive(name, self.members, got * width)
        self.traffic.messages(self.members, send > 0)
        self.traffic.collectives += 1
        return found

    def all_gather(self, kind: str, values: Any) -> list[Any]:
        """Every member's ``values``, one-dimensional, of lengths that may differ; all members call it."""
        send = np.full(self.size, values.size, dtype=np.int64)
        receive = self.sizes(send)
        every = np.tile(values, self.size) if isinstance(values, np.ndarray) else _tiled(values, self.size)
        found = self.all_to_all(kind, every, send, receive)
        ends = np.cumsum(receive)
        return [found[end - n : end] for end, n in zip(ends.tolist(), receive.tolist())]

    def sum(self, kind: str, values: np.ndarray) -> np.ndarray:
        """The sum of all members' integers, ``int64[n]``, on every member."""
        return np.asarray(self._reduced(kind, values, "SUM"))

    def max(self, kind: str, values: np.ndarray) -> np.ndarray:
        """The largest of all members' integers, entry by entry, ``int64[n]``, on every member."""
        return np.asarray(self._reduced(kind, values, "MAX"))

    def _reduced(self, kind: str, values: np.ndarray, how: str) -> np.ndarray:
        import torch.distributed as dist

        values = np.array(values, dtype=np.int64)
        if self.size == 1:
            return values
        given, back = self._tensor(values)
        dist.all_reduce(given, getattr(dist.ReduceOp, how), group=self.group)
        # Counted as if every rank told every other; algorithms that move less differ between backends.
        self._count(kind, np.full(self.size, values.nbytes), np.full(self.size, values.nbytes))
        return np.asarray(back(given))

    # ---- messages, for "csp-async" ----------------------------------------------------------------------------

    def post(self, kind: str, member: int, values: np.ndarray, tag: int) -> Any:
        """Send ``values`` to a member without waiting; what is returned has ``wait()``. NumPy on Gloo ranks alone."""
        import torch
        import torch.distributed as dist

        self.traffic.send(kind, self.members[member], values.nbytes)
        tensor = torch.from_numpy(np.ascontiguousarray(values))
        return _Sent(dist.isend(tensor, int(self.members[member]), group=self.group, tag=tag), tensor)

    def fetch(self, kind: str, member: int, out: np.ndarray, tag: int) -> np.ndarray:
        """Wait for a member's message and return it, in ``out``."""
        import torch
        import torch.distributed as dist

        dist.recv(torch.from_numpy(out), int(self.members[member]), group=self.group, tag=tag)
        self.traffic.receive(kind, self.members[member], out.nbytes)
        return out

    def receive_any(self, kind: str, out: np.ndarray, tag: int) -> int:
        """Wait for the first message of any member, into ``out``; returns the member."""
        import torch
        import torch.distributed as dist

        source = dist.recv(torch.from_numpy(out), None, group=self.group, tag=tag)
        self.traffic.receive(kind, source, out.nbytes)
        return int(np.searchsorted(self.members, source))

    # ---- by address -------------------------------------------------------------------------------------------

    def _by_address(
        self, kind: str, values: Any, send: np.ndarray, receive: np.ndarray, out: Any = None
    ) -> Any:
        """:meth:`all_to_all` of a CuPy array without torch, on CuPy's current stream; one's own entries stay here."""
        import cupy

        values, width = cupy.ascontiguousarray(values), values.dtype.itemsize
        if out is None:
            out = cupy.empty(int(receive.sum()), values.dtype)
        given, taken = (np.cumsum(n) - n for n in (send, receive))
        me = self.index
        if send[me]:
            out[taken[me] : taken[me] + receive[me]] = values[given[me] : given[me] + send[me]]
        sends, receives = (
            [
                (p, int(array.data.ptr + begins[p] * width), int(counts[p] * width))
                for p in range(self.size)
                if p != me and counts[p]
            ]
            for array, begins, counts in ((values, given, send), (out, taken, receive))
        )
        self.post_messages(sends, receives, int(cupy.cuda.get_current_stream().ptr))
        self._count(kind, send * width, receive * width)
        return out

    def post_messages(self, sends: Sequence[Message], receives: Sequence[Message], stream: int) -> None:
        """As :meth:`Nccl.exchange`, where there is an :attr:`nccl`. The caller counts."""
        assert self.nccl is not None
        self.nccl.exchange(sends, receives, stream)

    def start(self, launch: Callable[[], None]) -> None:
        """Launch work in which collectives of this exchange are, such as a CUDA graph of them."""
        launch()

    # ---- tensors ----------------------------------------------------------------------------------------------

    def all_to_all_tensors(self, kind: str | None, out: Any, given: Any, receive: Any, send: Any) -> None:
        """``torch.distributed.all_to_all_single`` on tensors of the rank's device.

        Its bytes are counted as ``kind``; with None the caller counts, as for a captured collective that is replayed.
        """
        import torch.distributed as dist

        send_counts, receive_counts = [int(n) for n in send], [int(n) for n in receive]
        dist.all_to_all_single(out, given, receive_counts, send_counts, group=self.group)
        if kind is None:
            return
        width = given.element_size() * int(np.prod(given.shape[1:], dtype=np.int64))
        self._count(kind, np.array(send_counts) * width, np.array(receive_counts) * width)

    def swap(self, out: Sequence[Any], given: Sequence[Any]) -> None:
        """``torch.distributed.all_to_all``: ``given[p]`` goes to member p, ``out[p]`` comes from it.

        This method and the three below take tensors of the rank's device as they are, also inside a capture, and leave
        the counting to the caller, who may replay what is captured.
        """
        import torch.distributed as dist

        dist.all_to_all(list(out), list(given), group=self.group)

    def swap_evenly(self, out: Any, given: Any) -> None:
        """The same with as many entries for each member."""
        import torch.distributed as dist

        dist.all_to_all_single(out, given, group=self.group)

    def swap_pair(self, to: int, given: Any, source: int, out: Any) -> None:
        """Two messages, one to a member and one from a member, that nobody else waits for; empty ones do not travel."""
        import torch.distributed as dist

        posted = []
        if given.numel():
            posted.append(dist.P2POp(dist.isend, given, int(self.members[to]), self.group))
        if out.numel():
            posted.append(dist.P2POp(dist.irecv, out, int(self.members[source]), self.group))
        for work in dist.batch_isend_irecv(posted) if posted else ():
            work.wait()  # on a GPU the stream waits, not the host

    def reduce_max(self, values: Any) -> None:
        """The largest of all members' values, entry by entry, in place."""
        import torch.distributed as dist

        dist.all_reduce(values, dist.ReduceOp.MAX, group=self.group)

    def _count(self, kind: str, sent: np.ndarray, received: np.ndarray) -> None:
        self.traffic.send(kind, self.members, sent)
        self.traffic.receive(kind, self.members, received)
        self.traffic.collectives += 1

    def _tensor(self, values: Any) -> tuple[Any, Any]:
        """``values`` as a tensor where the group's collectives work, and the way back to their library."""
        import torch

        # Backends do not know unsigned integers of 32 and 64 bits; they move bytes.
        own = values.dtype
        moved = values.view(own.str.replace("u", "i")) if own.kind == "u" and own.itemsize > 1 else values
        if is_cuda_array(values):
            import cupy

            return torch.from_dlpack(cupy.ascontiguousarray(moved)), lambda t: cupy.from_dlpack(t).view(own)
        host = torch.from_numpy(np.ascontiguousarray(moved))
        if self.rank.backend == "nccl":
            return host.to(self.rank.device), lambda tensor: tensor.cpu().numpy().view(own)
        return host, lambda tensor: tensor.numpy().view(own)


class _Sent:
    """A message under way, with the memory that it is sent from."""

    def __init__(self, work: Any, tensor: Any) -> None:
        self._work, self._tensor = work, tensor

    def wait(self) -> None:
        self._work.wait()


def _into(out: Any, values: Any) -> Any:
    if out is None:
        return values.copy()
    out[...] = values
    return out


def _tiled(values: Any, times: int) -> Any:
    import cupy

    return cupy.tile(values, times)
