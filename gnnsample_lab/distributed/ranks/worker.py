"""The process of a rank: ``python -m gnnsample_lab.distributed.ranks.worker``, started by :mod:`.crew` alone.

Its standard input and output are the pipes of messages; what functions print goes to standard error, which the parent
reads line by line. One thread reads messages, so that the process ends as soon as the parent does, whatever its
function is at. Functions run on the main thread.
"""

from __future__ import annotations

import contextlib
import faulthandler
import linecache
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from datetime import timedelta
from typing import Any

from gnnsample_lab.distributed.ranks.errors import is_late, is_of_peers, stage_of, text_of
from gnnsample_lab.distributed.ranks.rank import Groups, Rank, flush
from gnnsample_lab.distributed.ranks.wire import KEY_BYTES, Wire, end_mark

PARENT_S = 1.0
"""Seconds between looks whether the parent is there."""
ALIVE_S = 1.0
"""Seconds between signs of life."""


def main() -> None:
    key = os.read(0, KEY_BYTES)
    wire = Wire(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"), key, is_parent=False)
    with open(os.devnull) as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    tasks: queue.Queue[tuple[dict[str, Any], bytes]] = queue.Queue()
    threading.Thread(target=_listen, args=(wire, tasks), daemon=True, name="messages").start()
    threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True, name="parent").start()
    threading.Thread(target=_beat, args=(wire,), daemon=True, name="heartbeat").start()
    setup, _ = tasks.get()
    try:
        worker = _Worker(wire, setup, end_mark(key) + b"\n")
    except BaseException as error:
        wire.send("failure", number=0, **_described(error, _Worker.at))
        tasks.get()  # the parent ends this process
        return
    wire.send("ready")
    while True:
        header, body = tasks.get()
        if header["kind"] == "quit":
            break
        worker.run(header, body)
    worker.leave()


def _listen(wire: Wire, tasks: queue.Queue[tuple[dict[str, Any], bytes]]) -> None:
    """Pass messages on; when the parent has gone, end this process and its children."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            tasks.put(wire.receive())
    end_this_group()


def _beat(wire: Wire) -> None:
    """Tell the parent that this process runs and that its interpreter answers, whatever the function waits for."""
    with contextlib.suppress(OSError, ValueError):  # the parent has gone
        while True:
            wire.send("alive")
            time.sleep(ALIVE_S)


def _watch_parent(parent: int) -> None:
    """A process that the parent forked keeps the pipe open after the parent's end."""
    while os.getppid() == parent:
        time.sleep(PARENT_S)
    end_this_group()


def end_this_group() -> None:
    """Kill this process and its children."""
    if hasattr(os, "killpg"):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


class _Worker:
    at = "start"

    def __init__(self, wire: Wire, setup: dict[str, Any], mark: bytes) -> None:
        self._wire, self._mark, self._output = wire, mark, os.dup(2)
        self.index, self.ranks = setup["index"], setup["ranks"]
        self.backend, self.timeout_s = setup["backend"], setup["collective_timeout_s"]
        self.limit_bytes = setup["limit_bytes"]
        sys.path[:] = setup["path"]
        self.device = "cpu" if self.backend == "gloo" else f"cuda:{self.index}"
        import torch
        import torch.distributed as dist

        if self.backend == "gloo":
            torch.set_num_threads(1)
        else:
            torch.cuda.set_device(self.index)
            import cupy

            cupy.cuda.Device(self.index).use()
        _Worker.at = "rendezvous"
        self._wire.send("stage", stage="rendezvous")
        dist.init_process_group(
            self.backend,
            init_method=setup["rendezvous"],
            rank=self.index,
            world_size=self.ranks,
            timeout=timedelta(seconds=self.timeout_s),
        )
        self._groups = Groups(self.index, self.device, self.timeout_s)
        self._worlds: dict[int, Rank] = {self.ranks: self._rank(self.ranks, dist.group.WORLD)}

    def _rank(self, world: int, group: Any) -> Rank:
        return Rank(
            self.index, world, device=self.device, backend=self.backend, group=group, groups=self._groups,
            timeout_s=self.timeout_s, tell=self._tell,
        )  # fmt: skip

    def _tell(self, kind: str, **header: Any) -> None:
        if kind == "log":  # keeps its place among what is printed
            print(header["text"], flush=True)
        else:
            self._wire.send(kind, **header)

    def run(self, header: dict[str, Any], body: bytes) -> None:
        """Run one function and send its result, or what went wrong."""
        number, world, name = header["number"], header["world"], header["name"]
        stage = name
        self._wire.send("stage", stage=name)
        try:
            self._groups.end_left()  # the parent has every rank's result of the function before
            if world not in self._worlds:
                group = self._groups.make([range(world)], self._worlds[self.ranks].group)
                self._worlds[world] = self._rank(world, group)
            if self.index >= world:
                self._wire.send("ready")
                return  # of a smaller world this rank knows the group's number alone
            for file, lines in header["sources"].items():  # cells have no file to read tracebacks' lines from
                linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
            try:
                function, arguments = pickle.loads(body)
            except Exception as error:
                raise RuntimeError(
                    f"{name} and its arguments could not be read by a rank ({type(error).__name__}: {error}); what is "
                    "not defined in the notebook must be importable there"
                ) from error
            value = function(self._worlds[world], *arguments)
            stage = f"result of {name}"
            data = self._pickled(value)
        except BaseException as error:
            flush()
            self._wire.send("failure", number=number, **_described(error, stage))
        else:
            flush()
            for descriptor in (1, 2):  # the function may have closed or redirected them
                os.dup2(self._output, descriptor)
            os.write(self._output, self._mark)
            self._wire.send("result", data, number=number)

    def _pickled(self, value: Any) -> bytes:
        import cloudpickle

        try:
            data: bytes = cloudpickle.dumps(value, protocol=5)
        except Exception as error:
            raise TypeError(
                f"the result cannot be pickled ({type(value).__name__}: {error}): return arrays, numbers, text or "
                "plain records"
            ) from error
        if len(data) > self.limit_bytes:
            raise ValueError(
                f"the result has {len(data)} bytes, more than the {self.limit_bytes} that may travel: write it to a "
                "file and return the file's path"
            )
        return data

    def leave(self) -> None:
        import torch.distributed as dist

        with contextlib.suppress(Exception):
            dist.destroy_process_group()
        flush()
        os._exit(0)  # taking torch apart takes seconds


def _described(error: BaseException, stage: str) -> dict[str, Any]:
    """What the parent is told of an error; ``of_peers``: peers that died or were late may be its cause."""
    trace = error.__traceback__
    # Frames of this file are of no use to whoever wrote the function.
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace)
    return {
        "stage": stage_of(error, stage),
        "text": text_of(error),
        "traceback": "".join(lines),
        "of_peers": is_of_peers(error),
        "timed_out": is_late(error),
        "at": time.monotonic(),
    }


if __name__ == "__main__":
    main()
