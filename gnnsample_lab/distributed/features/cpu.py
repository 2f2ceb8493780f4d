# mypy: allow-untyped-defs, no-disallow-incomplete-defs
"""Rows on CPU ranks: as on GPUs, with mapped files for peers' memory and for pinned host memory.

Cold rows are copied by a thread while the rank exchanges hot ones.
"""

from __future__ import annotations

import copy
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gnnsample_lab.device.jit import njit
from gnnsample_lab.distributed.peer_memory import PeerMemory, aligned
from gnnsample_lab.distributed.sampling.asking import Questions
from gnnsample_lab.distributed.sampling.exchange import Exchange
from gnnsample_lab.features.caching.host import words

from .parts import PartRows
from .setup import Setup
from .tally import Tally, tally

LABEL = "CPU: no NVLink"


@njit(cache=True)
def copy_rows(table, rows, to, out):
    """``out[to[i]] = table[rows[i]]``; tables as ``host.words`` makes them."""
    for i in range(rows.size):
        for j in range(out.shape[1]):
            out[to[i], j] = table[rows[i], j]


class CpuEngine:
    """The rows of one CPU rank.

    Attributes:
        mine: rows of this rank's cache, ``[rows, F]``.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup, self.placement, self.layout = setup, setup.placement, setup.layout
        self.num_parts = setup.placement.num_parts
        self.parts = PartRows(setup.layout)
        self.label, self._is_first = LABEL, True
        self._threads = ThreadPoolExecutor(1, "cold-rows")
        ids = self.placement.cached[setup.me]
        shape = (len(ids), setup.num_features)
        self._positions = self.placement.place_of[self.layout.part.vertices]
        self._peers: PeerMemory | None = None
        if setup.transport == "direct" and self.placement.kind == "partitioned":
            nbytes = aligned(len(ids) * setup.row_bytes)
            listed = self._positions.nbytes if setup.positions == "owner" else 0
            self._peers = PeerMemory(
                self.layout.rank, nbytes + listed, method="direct", group=self.layout.exchange.group
            )
            self.mine = self._peers.array(setup.dtype, shape)
            if listed:
                self._peers.array(np.int32, len(self._positions), nbytes)[:] = self._positions
        else:
            self.mine = np.empty(shape, setup.dtype)
        self.parts.read(ids, np.arange(len(ids)), self.mine)
        if self._peers is not None:
            self._peers.barrier()

    def another(self, setup: Setup) -> CpuEngine:
        """The same rows with the collectives of ``setup`` and a thread of its own; closed before this one."""
        found = copy.copy(self)
        found.setup, found._threads, found._is_first = setup, ThreadPoolExecutor(1, "cold-rows"), False
        return found

    @property
    def nbytes(self) -> int:
        listed = self._positions if self.setup.positions == "owner" else self.placement.place_of
        return int(self.mine.nbytes + listed.nbytes)

    def _rows_of(self, part: int) -> np.ndarray:
        if part == self.setup.me:
            return self.mine
        assert self._peers is not None
        shape = (len(self.placement.cached[part]), self.setup.num_features)
        return np.asarray(self._peers.array_of(part, self.setup.dtype, shape))

    # ---- positions --------------------------------------------------------------------------------------------

    def find(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions ``int32[n]``, and how many were read in each peer's memory, ``int64[parts]``."""
        none = np.zeros(self.num_parts, np.int64)
        if self.setup.positions == "everywhere":
            return self.placement.place_of[ids], none
        owner = self.layout.partition.owner[ids].astype(np.int64)
        if self._peers is not None:
            places = np.empty(ids.size, np.int32)
            for part in np.unique(owner).tolist():
                at = np.flatnonzero(owner == part)
                places[at] = self._list_of(part)[self.layout.rows(ids[at], part)]
            return places, np.bincount(owner, minlength=self.num_parts)
        me = self.setup.me
        places = np.empty(ids.size, np.int32)
        here, there = np.flatnonzero(owner == me), np.flatnonzero(owner != me)
        places[here] = self._positions[self.layout.rows(ids[here], me)]
        bounds = self.layout.partition.boundaries
        listed = (self.layout.partition.new_of[ids[there]] - bounds[owner[there]]).astype(np.int32)
        asked = Questions(self.setup.exchange, owner[there])
        answers = self._positions[asked.ask(listed)]
        places[there[asked.order]] = asked.answer("positions", answers)
        return places, none

    def _list_of(self, part: int) -> np.ndarray:
        if part == self.setup.me:
            return self._positions
        assert self._peers is not None
        bounds = self.layout.partition.boundaries
        begin = aligned(len(self.placement.cached[part]) * self.setup.row_bytes)
        return np.asarray(self._peers.array_of(part, np.int32, int(bounds[part + 1] - bounds[part]), begin))

    # ---- rows -------------------------------------------------------------------------------------------------

    def gather(
        self, ids: np.ndarray, places: np.ndarray, positions: np.ndarray, out: np.ndarray, ordered: bool
    ) -> tuple[np.ndarray | None, Tally, dict[str, float]]:
        """Rows of ``ids`` into ``out``; all ranks call it if the transport is collective.

        Returns:
            ``(index, tally, stages)``: without ``ordered``, ``out[index[i]]`` is the row of ``ids[i]``.
        """
        setup, me, parts = self.setup, self.setup.me, self.num_parts
        began = time.perf_counter()
        holders, rows = self.placement.holders(places, me), self.placement.rows(places)
        cold_rows, served = rows, rows[:0]
        if setup.num_hosts > 1:
            begin, end = self.placement.cold_bounds[setup.host : setup.host + 2]
            holders[(holders == parts) & ((rows < begin) | (rows >= end))] = parts + 1
            cold_rows = rows.copy()
            rows[holders == parts] -= begin
        to, index = np.arange(ids.size), None
        if not ordered:
            # Rows arrive by peer; then come one's own and those of the hosts.
            to[np.argsort(np.where(holders == me, parts - 0.5, holders), kind="stable")] = np.arange(ids.size)
            index = to.astype(np.int32)
        cold, local = np.flatnonzero(holders == parts), np.flatnonzero(holders == me)
        waiting = self._threads.submit(self._read_cold, ids[cold], to[cold], out)
        try:
            table, target = words(self.mine, out)
            copy_rows(table, rows[local], to[local], target)
            there = np.flatnonzero((holders != me) & (holders < parts))
            if setup.transport == "direct":
                for part in np.unique(holders[there]).tolist():
                    at = there[holders[there] == part]
                    table, target = words(self._rows_of(part), out)
                    copy_rows(table, rows[at], to[at], target)
            elif self.placement.kind == "partitioned":
                self._exchange(setup.exchange, holders[there], rows[there], to[there], out, self._serve)
            if setup.asks_hosts:
                away = np.flatnonzero(holders == parts + 1)
                host = np.searchsorted(self.placement.cold_bounds, cold_rows[away], "right") - 1
                partners = setup.partners[host]
                asked = self._exchange(
                    setup.world, partners, cold_rows[away], to[away], out, self._serve_cold
                )
                served = asked - begin
        finally:
            cold_us = waiting.result()
        found = tally(holders, rows, setup.row_bytes, positions, served)
        return index, found, {"cold_us": cold_us, "rows_us": (time.perf_counter() - began) * 1e6}

    def _read_cold(self, ids: np.ndarray, to: np.ndarray, out: np.ndarray) -> float:
        began = time.perf_counter()
        self.parts.read(ids, to, out)
        return (time.perf_counter() - began) * 1e6

    def _exchange(
        self,
        exchange: Exchange,
        peers: np.ndarray,
        rows: np.ndarray,
        to: np.ndarray,
        out: np.ndarray,
        serve: Any,
    ) -> np.ndarray:
        """Ask peers for rows, to be put in their places in ``out``; returns the rows that this rank was asked for."""
        asked = Questions(exchange, peers)
        wanted: np.ndarray = asked.ask(rows.astype(np.int32))
        sent = serve(wanted).view(np.uint8).reshape(-1)
        got = asked.answer("rows", sent, self.setup.row_bytes)
        given = got.view(self.setup.dtype).reshape(-1, self.setup.num_features)
        table, target = words(given, out)
        copy_rows(table, np.arange(len(given)), to[asked.order], target)
        return wanted.astype(np.int64)

    def _serve(self, rows: np.ndarray) -> np.ndarray:
        given = np.empty((rows.size, self.setup.num_features), self.setup.dtype)
        table, target = words(self.mine, given)
        copy_rows(table, rows, np.arange(rows.size), target)
        return given

    def _serve_cold(self, rows: np.ndarray) -> np.ndarray:
        given = np.empty((rows.size, self.setup.num_features), self.setup.dtype)
        self.parts.read(self.placement.cold[rows], np.arange(rows.size), given)
        return given

    def close(self) -> None:
        self._threads.shutdown()
        peers, self._peers = self._peers, None
        if peers is not None and self._is_first:
            self.mine = np.empty((0, self.setup.num_features), self.setup.dtype)
            peers.close()
