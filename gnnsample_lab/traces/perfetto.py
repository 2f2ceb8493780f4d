"""Traces as files that Perfetto (ui.perfetto.dev) and Chrome's tracing page open: who did what when, to zoom into.

The format is Chrome's trace events as JSON: complete events (``X``) with begin and duration in microseconds, counters
(``C``), instants (``i``) and names of processes and threads (``M``). A multiprocessor, a GPU or a rank is a process of
the file, and what it does at once stands in several of its threads, since events of one thread may nest but not cross.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnsample_lab.checks import path as checked_path
from gnnsample_lab.files import replace_file
from gnnsample_lab.traces.analysis import assign_lanes, hop_spans
from gnnsample_lab.traces.records import SampleTrace

_RUN = 1
"""The process of what belongs to the whole run: hops, host, counters. Perfetto keeps 0 for the idle task."""


class TraceEvents:
    """Events of a file to be; processes and threads are numbered as they are named."""

    def __init__(self, title: str, about: Mapping[str, Any]) -> None:
        self.title, self.about = title, dict(about)
        self._events: list[dict[str, Any]] = []
        self._threads: dict[tuple[int, str], int] = {}
        self.process(_RUN, title)

    def process(self, pid: int, name: str) -> None:
        """Name a process; they are shown in the order of their numbers."""
        self._meta("process_name", pid, {"name": name})
        self._meta("process_sort_index", pid, {"sort_index": pid})

    def complete(
        self, pid: int, thread: str, name: str, start_us: float, end_us: float, category: str, **args: Any
    ) -> None:
        """Something that took time."""
        event = {"ph": "X", "pid": pid, "tid": self._thread(pid, thread), "name": name, "cat": category}
        self._events.append(event | {"ts": start_us, "dur": max(end_us - start_us, 0.0), "args": args})

    def instant(self, pid: int, thread: str, name: str, time_us: float, category: str, **args: Any) -> None:
        """Something that happened at a time."""
        event = {"ph": "i", "s": "t", "pid": pid, "tid": self._thread(pid, thread), "name": name}
        self._events.append(event | {"cat": category, "ts": time_us, "args": args})

    def counter(self, pid: int, name: str, time_us: Iterable[float], value: Iterable[float]) -> None:
        """A number over time."""
        for at, number in zip(time_us, value, strict=True):
            self._events.append({"ph": "C", "pid": pid, "name": name, "ts": at, "args": {name: number}})

    def write(self, path: str | Path) -> Path:
        """Write the file; a reader sees the old one or the whole new one.

        Raises:
            TypeError: ``path`` is no path.
            ValueError: ``path`` is a folder, or a time is not finite.
            OSError: the folder cannot be written.
        """
        path = checked_path("path", path)
        if not path.name or path.is_dir():
            raise ValueError(f"path must name a file (got the folder {str(path)!r})")
        if not path.suffix:
            path = path.with_suffix(".json")
        body = {"traceEvents": self._events, "displayTimeUnit": "ns", "otherData": self.about}
        return replace_file(path, json.dumps(body, allow_nan=False, separators=(",", ":")).encode())

    def _thread(self, pid: int, name: str) -> int:
        known = self._threads.get((pid, name))
        if known is None:
            known = self._threads[pid, name] = len(self._threads) + 1
            self._meta("thread_name", pid, {"name": name}, known)
            self._meta("thread_sort_index", pid, {"sort_index": known}, known)
        return known

    def _meta(self, name: str, pid: int, args: dict[str, Any], tid: int | None = None) -> None:
        event = {"ph": "M", "pid": pid, "name": name, "args": args}
        self._events.append(event if tid is None else event | {"tid": tid})


def lanes_of(spans: Sequence[tuple[float, float]]) -> list[int]:
    """A lane for every span, in the order given, such that spans of a lane do not overlap; lanes are filled from 0."""
    lanes = [0] * len(spans)
    running: list[tuple[float, int]] = []
    free: list[int] = []
    used = 0
    for i in sorted(range(len(spans)), key=spans.__getitem__):
        start, end = spans[i]
        while running and running[0][0] <= start:
            heapq.heappush(free, heapq.heappop(running)[1])
        if free:
            lanes[i] = heapq.heappop(free)
        else:
            lanes[i], used = used, used + 1
        heapq.heappush(running, (end, lanes[i]))
    return lanes


def _plain(value: Any) -> Any:
    """What JSON can hold; no number is null."""
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sample_events(trace: SampleTrace) -> TraceEvents:
    """The events of a sampling run: hops, tasks by multiprocessor, queue depth, running tasks, lost tasks."""
    about = {
        "origin": trace.label, "strategy": trace.strategy, "graph": trace.title, "pick": trace.pick,
        "fanouts": list(trace.fanouts), "batch_size": trace.batch_size, "seed": trace.seed, "batch_id": trace.batch_id,
        "completion": trace.completion, "fetch_size": trace.fetch_size, "total_us": _plain(trace.total_us),
    }  # fmt: skip
    events = TraceEvents(f"{trace.strategy} · {trace.title} · {trace.label}", about)
    for hop, (start, end) in enumerate(hop_spans(trace).tolist()):
        if math.isfinite(start):
            row = {
                name: _plain(getattr(trace.hops, name)[hop])
                for name in ("workload", "num_picks", "preprocess_us")
            }
            events.complete(_RUN, f"hop {hop + 1}", f"hop {hop + 1}", start, end, "hop", **row)
    tasks, lanes = trace.tasks, assign_lanes(trace).tolist()
    for sm in sorted(set(tasks.sm.tolist())):
        events.process(_RUN + 1 + sm, f"SM {sm}")
    columns = zip(
        tasks.sm.tolist(), lanes, tasks.hop.tolist(), tasks.vertex.tolist(), tasks.start_us.tolist(),
        tasks.end_us.tolist(), tasks.degree.tolist(), tasks.num_picks.tolist(), tasks.block.tolist(),
        tasks.enqueue_us.tolist(), strict=True,
    )  # fmt: skip
    for sm, lane, hop, vertex, start, end, degree, picks, block, queued in sorted(columns):
        events.complete(
            _RUN + 1 + sm, f"task {lane + 1} at a time", f"hop {hop + 1}", start, end, f"hop {hop + 1}",
            vertex=vertex, degree=degree, picks=picks, block=block, wait_us=_plain(start - queued),
        )  # fmt: skip
    if len(trace.queue):
        events.counter(_RUN, "queue depth", trace.queue.time_us.tolist(), trace.queue.depth.tolist())
    steps = sorted([(t, 1) for t in tasks.start_us.tolist()] + [(t, -1) for t in tasks.end_us.tolist()])
    now, running = 0, {}
    for at, step in steps:
        now += step
        running[at] = now
    events.counter(_RUN, "running tasks", running.keys(), running.values())
    lost = trace.lost
    for hop, vertex, slot, at in zip(
        lost.hop.tolist(), lost.vertex.tolist(), lost.slot.tolist(), lost.enqueue_us.tolist(), strict=True
    ):
        if math.isfinite(at):
            events.instant(_RUN, "lost tasks", f"lost: hop {hop + 1}", at, "lost", vertex=vertex, slot=slot)
    return events


def epoch_events(
    title: str,
    about: Mapping[str, Any],
    roles: Sequence[str],
    events: Iterable[Any],
    waits: Iterable[Any],
    queues: Mapping[str, Any],
) -> TraceEvents:
    """The events of an epoch: stages and waits by GPU and worker, and the depth of the queues.

    Args:
        roles: of each GPU. events: with ``gpu``, ``worker``, ``stage``, ``batch``, ``start_s`` and ``end_s``.
        waits: with ``gpu``, ``worker``, ``reason``, ``start_s`` and ``end_s``. queues: by name, ``time_s``, ``depth``.
    """
    made = TraceEvents(title, about)
    for gpu, role in enumerate(roles):
        made.process(_RUN + 1 + gpu, f"GPU {gpu} · {role}")
    rows: dict[tuple[int, str], list[tuple[float, float, str, str, dict[str, Any]]]] = {}
    for e in events:
        name = e.stage if e.batch < 0 else f"{e.stage} {e.batch}"
        span = (1e6 * e.start_s, 1e6 * e.end_s)
        rows.setdefault((e.gpu, e.worker), []).append((*span, name, e.stage, {"batch": e.batch}))
    for w in waits:
        span = (1e6 * w.start_s, 1e6 * w.end_s)
        rows.setdefault((w.gpu, f"{w.worker} waits"), []).append(
            (*span, f"waits: {w.reason}", "wait", {"reason": w.reason})
        )
    for (gpu, worker), spans in sorted(rows.items()):
        lanes = lanes_of([span[:2] for span in spans])
        for lane, (start, end, name, category, args) in zip(lanes, spans, strict=True):
            thread = worker if lane == 0 else f"{worker}, {lane + 1} at a time"
            made.complete(_RUN + 1 + gpu, thread, name, start, end, category, **args)
    for name, queue in queues.items():
        made.counter(_RUN, name, (1e6 * queue.time_s).tolist(), queue.depth.tolist())
    return made
