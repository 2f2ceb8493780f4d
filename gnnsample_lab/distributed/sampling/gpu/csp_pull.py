"""``pull`` on a GPU: lists of remote vertices come whole (DSP, sections 4.1 and 7.3), and each rank draws for itself.

A hop is four exchanges, of sizes, of ids, of lengths and of lists, and with weights a fifth. Between the last ones the
host reads once: one pass adds up the lengths of lists that leave and of those that come, and tells where each rank's
end. Draws are those of :mod:`.csp_core`, a lane or a warp a row, from lists as they came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from gnnsample_lab.sampling.neighbors.plan import SCAN_TILE
from gnnsample_lab.sampling.neighbors.workspace import Workspace

from .csp_core import Buffer, Core, Steps, Swap, packed
from .csp_kernels import ASKED, SUMS, Argument, Launch

_THREADS = 256
_STEP = 128
"""Entries that a warp has under way in a copy."""
_BLOCKS_PER_SM = 8
"""Copies have more loads under way than draws."""


class PullCore:
    """Whole lists for one rank's :class:`Core`.

    Args:
        core: whose buffers and draws are used; it knows by now whether weights need more than 32 bits.

    Attributes:
        lengths, offsets, lists, amounts: of lists that leave this rank and then, end to end, of those that come, of
            which it has one for each row that it draws for: own rows, which need none, have empty ones.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        ids, turns = core.part.indices.dtype, core.turns
        self.lengths, self.offsets = Buffer(np.int32, turns), Buffer(np.int64, turns)
        self.lists = Buffer(ids, turns)
        self.amounts = Buffer(np.uint64 if core.wide_amounts else np.uint32, turns)
        self._starts, self._sums_of = Buffer(np.int64, turns), Buffer(np.uint64, turns)
        self._sums, self._state = Buffer(np.uint64, turns), Buffer(np.uint64, turns)
        self._asked, self._added = Argument(*ASKED), Argument(*SUMS)

    def steps(self, seeds: np.ndarray, batch_id: int, graph: Any) -> Steps:
        """A mini-batch, as :meth:`Core.exact` yields it."""
        return self.core.steps(seeds, batch_id, graph, self.hop)

    def hop(self, ws: Workspace, hop: int) -> Steps:
        """One hop: sizes, ids, lengths, lists; the host reads twice."""
        core, weighted = self.core, self.core.spec.weighted
        n, sent, got = yield from core.sizes(ws, hop)
        give, take, _ = core.request_ranges(sent, got)
        yield Swap(core.send, core.requests, give, take)
        core.served[hop] = got
        (give, _), (take, at), leave = packed(got), packed(sent), sum(got)
        take = [(leave + begin, leave + end) for begin, end in take]
        self._measure(ws, leave, at[core.me], sent)
        take[core.me] = (0, 0)
        yield Swap(self.lengths, self.lengths, give, take)
        left, came = list(accumulate(got)), [leave + end for end in accumulate(sent)]
        self.offsets.room(came[-1] + 1)
        left, came = self._add_up(self.lengths.ptr, 4, came[-1], self.offsets.ptr, left, came)
        out, entries = left[-1], came[-1]
        self.lists.room(entries)
        if weighted:
            self.amounts.room(entries)
        self._copy(ws, leave, out)
        give, take = list(pairwise([0, *left])), list(pairwise([out, *came]))
        yield Swap(self.lists, self.lists, give, take)
        sums = 0
        if weighted:
            yield Swap(self.amounts, self.amounts, give, take)
            width = self.amounts.dtype.itemsize
            self._sums.room(entries - out + 1)
            self._add_up(self.amounts.ptr + width * out, width, entries - out, self._sums.ptr)
            sums = self._sums.ptr - 8 * out  # counted from where the lists that leave begin, as offsets are
        core.moved.lists_out[hop] = [end - begin for begin, end in give]
        core.moved.lists_in[hop] = [end - begin for begin, end in take]
        pulled = self.offsets.ptr + 8 * leave, self.lists.ptr, sums
        if not core.strides[hop]:
            self._draw_ragged(ws, hop, n, sent, at, pulled)
            return
        _, reply_at = packed([core.reply_size(hop, m) for m in sent])
        core.back.room(reply_at[-1] + core.reply_size(hop, sent[-1]))
        own = core.back.ptr + reply_at[core.me]
        core.draw(ws, hop, sent, at, core.back.ptr, reply_at, own, pulled=pulled)
        core.merge(ws, hop, n, reply_at, sent)

    def _measure(self, ws: Workspace, leave: int, own_at: int, sent: Sequence[int]) -> None:
        """Lengths of the ``leave`` lists that others ask for; own rows get lists of no entries."""
        own = sent[self.core.me]
        self.lengths.room(leave + sum(sent))
        self._starts.room(leave)
        if self._sums_by_list:
            self._sums_of.room(leave)
        self._pack_asked(leave, 0, own_at, own)
        self._launch(ws, "list_lengths", -(-(leave + own) // _THREADS))

    def _copy(self, ws: Workspace, leave: int, entries: int) -> None:
        self._pack_asked(leave, entries)
        self._launch(ws, "copy_lists", -(-entries // (_STEP * _THREADS // 32)))

    def _pack_asked(self, leave: int, entries: int, own_at: int = 0, own: int = 0) -> None:
        core = self.core
        self._asked.pack(
            (core.requests.ptr, core.part.new_of_ptr, core.part.lower, leave, own_at, own, self.lengths.ptr,
             self._starts.ptr, self._sums_of.ptr, self.offsets.ptr, self.lists.ptr, self.amounts.ptr, entries,
             int(core.wide_amounts), 0),
        )  # fmt: skip

    @property
    def _sums_by_list(self) -> bool:
        """Whether each list has an address of its own for its weights' sums."""
        return self.core.part.has_records and self.core.spec.weighted

    def _launch(self, ws: Workspace, name: str, blocks: int) -> None:
        if not blocks:
            return
        launch = self._prepared(name, lambda: (ws.job, self._asked.memory))
        launch(self.core._stream, min(blocks, _BLOCKS_PER_SM * self.core.sms))

    def _prepared(self, name: str, args: Callable[[], tuple[np.ndarray, ...]]) -> Launch:
        known = self.core._launches  # as long as the workspace is the same
        if name not in known:
            known[name] = Launch(self.core.modules.pull(name), _THREADS, *args())
        found: Launch = known[name]
        return found

    def _add_up(
        self, values: int, width: int, n: int, out: int, left: Sequence[int] = (), came: Sequence[int] = ()
    ) -> tuple[list[int], list[int]]:
        """Sums of ``n`` values before each, and of all, in one pass.

        Args:
            values, width: address of unsigned integers, and bytes of one.
            n: how many there are; without any nothing is launched.
            out: address of ``int64[n + 1]``.
            left, came: if given, ends of each rank's values, whose sums the host waits for.

        Returns:
            The sums at ``left`` and ``came``.
        """
        core, parts = self.core, self.core.parts
        if not n:
            return [0] * parts, [0] * parts
        tiles = -(-n // SCAN_TILE)
        if self._state.array is None or self._state.array.size < 2 + tiles:
            self._state.room(2 + tiles).array.data.memset_async(
                0, self._state.nbytes
            )  # as each pass leaves it
        report, tag = (core._report_memory.ptr, int(core._next_tag())) if came else (0, 0)
        self._added.pack((values, out, n, self._state.ptr, report, tag, int(width == 8), parts), left, came)
        launch = self._prepared("add_up", lambda: (self._added.memory,))
        launch(core._stream, min(tiles, _BLOCKS_PER_SM * core.sms))
        return core.read_sums(tag) if came else ([], [])

    def _draw_ragged(
        self, ws: Workspace, hop: int, n: int, sent: Sequence[int], at: Sequence[int], pulled: tuple[int, int, int]
    ) -> None:  # fmt: skip
        """All neighbours: how many each row has, and them, of fetched lists and of own ones."""
        core, rows, mine = self.core, sum(sent), at[self.core.me]
        heads, offsets = core.fresh(np.int32, rows), core.fresh(np.int64, rows + 1)
        warps = 8 if core.id_bytes == 4 else 4
        grid, block = core.grid(max(sent), warps), (warps * 32,)
        tasks = core.pack_tasks(hop, sent, at, 0, (), 0, 0, pulled, 0)
        ragged = core.ragged.pack((heads.ptr, heads.ptr + 4 * mine, 0, 0, 0, 0, 0, 0))
        core.modules.draw("count_tasks", 0, True)(grid, block, (ws.args, tasks, ragged))
        ends = list(accumulate(sent))
        _, ends = self._add_up(heads.ptr, 4, rows, offsets.ptr, ends, ends)
        neighbors, slots = core.fresh(self.lists.dtype, ends[-1]), core.fresh(np.int32, ends[-1])
        ragged = core.ragged.pack(
            (0, 0, offsets.ptr, offsets.ptr + 8 * mine, neighbors.ptr, slots.ptr, neighbors.ptr, slots.ptr)
        )
        core.modules.draw("draw_ragged", 0, True)(grid, block, (ws.args, tasks, ragged, np.int32(hop)))
        core.moved.ragged[hop] = True
        core.merge_ragged(ws, hop, n, at, sent, offsets.ptr, heads, neighbors, slots)
