"""What a function gets as its first argument: which rank it is, whom it may talk to, and how it is heard."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from gnnsample_lab import checks
from gnnsample_lab.device.capturing import wait_for_device

from .errors import note_stage

if TYPE_CHECKING:
    from .life import Life

PROGRESS_S = 0.1
"""Least seconds between two reports of one progress bar."""
_NONE = 2**62


class Rank:
    """One of the processes that run a function together.

    Attributes:
        index: 0 to ``world_size - 1``.
        world_size: ranks that run this function.
        device: ``"cpu"`` or ``"cuda:<n>"``, the GPU of this rank; torch and CuPy have it as their current one.
        backend: ``"gloo"`` or ``"nccl"``.
        group: the process group of these ranks, for ``torch.distributed``'s ``group=``.
        host: index of this rank's host; 0 where there is one host.
        local_index: index among the ranks of the host.
        local_size: ranks of the host.
        timeout_s: the longest wait for other ranks in seconds.
        life: the signs of life of a rank that joined a job of ``torchrun``; None where a parent watches, or nobody.
    """

    def __init__(
        self,
        index: int,
        world_size: int,
        *,
        device: str,
        backend: str,
        group: Any,
        groups: Groups,
        timeout_s: float,
        tell: Callable[..., None],
        local_index: int | None = None,
        local_size: int | None = None,
        life: Life | None = None,
    ) -> None:
        self.index, self.world_size = index, world_size
        self.device, self.backend, self.group = device, backend, group
        self.local_index = index if local_index is None else local_index
        self.local_size = world_size if local_size is None else local_size
        self.host = index // self.local_size
        self._groups, self.timeout_s, self._tell, self.life = groups, timeout_s, tell, life
        self._parts: dict[tuple[tuple[int, ...], ...], Any] = {}
        self._stages: list[list[str]] = []
        self._lock = threading.Lock()
        self._bars = 0

    def __repr__(self) -> str:
        return f"Rank({self.index} of {self.world_size}, {self.backend}, {self.device})"

    # ---- being heard ------------------------------------------------------------------------------------------

    def log(self, *what: Any) -> None:
        """Print ``what`` where the user sees it, as ``rank 1: ...``.

        Args:
            what: anything; printed as by ``print``.
        """
        self._tell("log", text=" ".join(map(str, what)))

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Say what this rank is at; an error, a death or a time-out inside names it.

        Args:
            name: such as ``"sampling"``.

        Raises:
            TypeError: ``name`` is no string.
        """
        checks.text("name", name)
        entered = [name]  # told from another one of that name by what it is
        with self._lock:
            self._stages.append(entered)
        self._tell("stage", stage=name)
        try:
            yield
        except BaseException as error:
            note_stage(error, name)
            raise
        finally:
            # Threads may have stages of their own: the last one that was entered and not left is what is told.
            with self._lock:
                self._stages = [other for other in self._stages if other is not entered]
                last = self._stages[-1][0] if self._stages else None
            self._tell("stage", stage=last)

    def progress(self, items: Iterable[Any], total: int | None = None, text: str = "") -> Iterator[Any]:
        """``items``, one by one, with a progress bar of this rank in the notebook.

        Args:
            items: what to go through.
            total: how many they are; ``len(items)`` where they have one.
            text: stands before the bar.

        Raises:
            TypeError: ``items`` cannot be iterated, ``total`` is no integer, ``text`` no string.
            ValueError: ``total`` is negative.
        """
        if not isinstance(items, Iterable):
            raise TypeError(f"items must be something to iterate (got {checks.shown(items)})")
        checks.text("text", text)
        total = checks.optional(checks.whole, "total", total)
        if total is None and isinstance(items, Sized):
            total = len(items)
        self._bars += 1
        return self._counted(items, {"bar": self._bars, "total": total, "text": text})

    def _counted(self, items: Iterable[Any], bar: dict[str, Any]) -> Iterator[Any]:
        done, told = 0, -PROGRESS_S
        try:
            for item in items:
                if time.monotonic() - told >= PROGRESS_S:
                    told = time.monotonic()
                    self._tell("progress", done=done, ended=False, **bar)
                yield item
                done += 1
        finally:
            self._tell("progress", done=done, ended=True, **bar)

    # ---- the others -------------------------------------------------------------------------------------------

    def barrier(self) -> None:
        """Wait until all ranks of :attr:`group` are here.

        Raises:
            RuntimeError: not all came in time; with Gloo the message names those that are missing.
        """
        import torch.distributed as dist

        if self.backend == "gloo":
            dist.monitored_barrier(self.group, timedelta(seconds=self.timeout_s), wait_all_ranks=True)
        else:
            import torch

            dist.barrier(self.group, device_ids=[torch.device(self.device).index])
            wait_for_device()

    @contextlib.contextmanager
    def zero_first(self) -> Iterator[None]:
        """Rank 0 runs the block while the others wait, then they run it: what it compiles or caches is made once.

        Raises:
            RuntimeError: rank 0 did not get through in time.
        """
        if self.index:
            self.barrier()
        yield
        if not self.index:
            self.barrier()
        self.barrier()

    def another_group(self, backend: str | None = None, parts: Sequence[Sequence[int]] | None = None) -> Any:
        """A further process group of these ranks, for a worker with collectives of its own; all ranks call it alike.

        Args:
            backend: ``"gloo"`` for messages between hosts' memories; None is :attr:`backend`.
            parts: as in :meth:`split`: the group of the part that this rank is in; None for one group of all.

        Raises:
            TypeError, ValueError: an unknown backend; parts that do not hold each rank once.
        """
        checks.choice("backend", backend, (None, "gloo", "nccl"))
        found = [range(self.world_size)] if parts is None else self._checked_parts(parts)
        return self._groups.make(found, self.group, backend)

    def leave_group(self, group: Any) -> None:
        """Be done with a group of :meth:`another_group`; all its ranks call it.

        With Gloo its sockets and its thread, which wakes a hundred times a second, end before the next function begins:
        then no rank is in a collective of it any more. With NCCL the group waits from then on for the next
        :meth:`another_group` of the same ranks. A script of ``torchrun`` has :meth:`end_left` for that.

        Args:
            group: what :meth:`another_group` returned.
        """
        self._groups.leave(group)

    def end_left(self) -> None:
        """End the groups that were left, or keep them for later ones; all ranks call it together.

        Raises:
            RuntimeError: not all came in time.
        """
        self.barrier()
        self._groups.end_left()

    def split(self, parts: Sequence[Sequence[int]]) -> Any:
        """The process group of the part that this rank is in; every rank calls it with the same ``parts``.

        Args:
            parts: such as ``[[0, 1], [2, 3]]``: ranks of this world, each in one part.

        Raises:
            TypeError: a part is no list of integers.
            ValueError: a rank is in no part or in two, or there is no such rank.
        """
        found = self._checked_parts(parts)
        if len(found) == 1:
            return self.group
        key = tuple(sorted(found))
        if key not in self._parts:
            self._parts[key] = self._groups.make(key, self.group)
        return self._parts[key]

    def _checked_parts(self, parts: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        found = [
            tuple(
                sorted(checks.whole("parts", r, 0, self.world_size - 1) for r in checks.items("parts", part))
            )
            for part in checks.items("parts", parts, "a list of lists of ranks")
        ]
        if not all(found) or sorted(r for part in found for r in part) != list(range(self.world_size)):
            raise ValueError(
                f"parts must hold each of {self.world_size} ranks once (got {checks.shown(parts)})"
            )
        return found


class Groups:
    """The process groups of one process.

    torch names a group by how many groups its process has made, and members that disagree wait for each other for ever.
    Only some ranks make the groups of a smaller world, so all agree on the number first.

    Groups of :attr:`KEPT` backends that were left are taken again: a communicator of NCCL holds a GPU's memory, and to
    destroy one is a collective that may not meet another one's, while one that nobody uses only sleeps. The numbers
    under which groups were made say which one is meant, whatever the order in which ranks left them.
    """

    KEPT = ("nccl",)

    def __init__(self, index: int, device: str, timeout_s: float) -> None:
        self._index, self._device, self._timeout = index, device, timedelta(seconds=timeout_s)
        self._made = 0
        self._left: list[Any] = []
        self._known: dict[Any, tuple[Any, int]] = {}  # of a group: what it is of, and its number
        self._kept: dict[Any, dict[int, Any]] = {}  # by what they are of and number, groups that nobody uses

    def make(self, parts: Sequence[Sequence[int]], among: Any, backend: str | None = None) -> Any:
        """The group of the part that this rank is in, or None; all ranks of the group ``among`` call it alike."""
        import torch
        import torch.distributed as dist

        of = tuple(map(tuple, parts)), backend
        kept = self._kept.get(of, {})
        first = min(kept, default=_NONE)
        told = torch.tensor([self._made, first, -first], device=self._device)
        dist.all_reduce(told, dist.ReduceOp.MAX, group=among)
        most, highest, lowest = told.tolist()
        if highest == -lowest != _NONE:  # all have kept it
            return kept.pop(first)
        while self._made < most:
            dist.new_group([0 if self._index else 1])  # of others: it counts and holds nothing
            self._made += 1
        mine, number = None, self._made
        for part in parts:
            group = dist.new_group(list(part), timeout=self._timeout, backend=backend)
            self._made += 1
            mine = group if self._index in part else mine
        if mine is not None:
            self._known[mine] = of, number
        return mine

    def leave(self, group: Any) -> None:
        """Nobody here uses the group any more; :meth:`end_left` ends or keeps it."""
        self._left.append(group)

    def end_left(self) -> None:
        """End or keep what was left; called when all ranks are through with the function that left it."""
        import torch.distributed as dist

        left, self._left = self._left, []
        if left and self._device != "cpu":
            wait_for_device()  # a later user may have other streams
        for group in left:
            of, number = self._known[group]
            if dist.get_backend(group) in self.KEPT:
                self._kept.setdefault(of, {})[number] = group
            else:
                del self._known[group]
                dist.destroy_process_group(group)


def flush() -> None:
    """Have what was printed written out, before a process ends without more ado."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
