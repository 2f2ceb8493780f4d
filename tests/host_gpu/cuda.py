"""``cupy.cuda`` without a GPU: work is done when it is launched, or noted where its stream captures it."""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
import types
from typing import Any

import numpy as np

from . import memory

_addresses = itertools.count(0x1000, 0x10)
_state = threading.local()
_events: dict[int, Event] = {}
_destroyed: set[int] = set()
_asked_for: list[str] = []
NUM_SMS, BLOCKS_PER_SM = 16, 2


class CUDARuntimeError(RuntimeError):
    """As CuPy's."""


def submit(work: Any, stream: Any = None) -> None:
    """Do ``work``, or note it for the graph that is being captured by this thread."""
    graph = getattr(_state, "graph", None)
    if graph is not None and (get_current_stream() if stream is None else stream) is not Stream.null:
        graph.works.append(work)
        return
    work()


class Graph:
    """A captured graph."""

    def __init__(self) -> None:
        self.works: list[Any] = []
        self.ptr = self.graphExec = next(_addresses)

    def launch(self, stream: Any = None) -> None:
        for work in self.works:
            work()

    def upload(self, stream: Any = None) -> None:
        """Nothing to do."""


class Stream:
    """A stream."""

    null: Any = None
    ptds: Any = None
    device_id = 0

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: Any = None
    ) -> None:
        self.ptr = 0 if null else 2 if ptds else next(_addresses)

    def __del__(self) -> None:
        if _destroyed is not None and self._is_own:  # the interpreter has not ended
            _destroyed.add(self.ptr)

    _is_own = True

    def __enter__(self) -> Stream:
        _state.__dict__.setdefault("streams", []).append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _state.streams.pop()

    def use(self) -> Stream:
        _state.streams = [self]
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.ptr == self.ptr

    def __hash__(self) -> int:
        return self.ptr

    @property
    def done(self) -> bool:
        return True

    def synchronize(self) -> None:
        if getattr(_state, "graph", None) is not None:
            raise CUDARuntimeError(
                "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing"
            )

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Everything has been done already."""

    def launch_host_func(self, callback: Any, arg: Any) -> None:
        submit(lambda: callback(arg), self)

    def begin_capture(self, mode: Any = None) -> None:
        _state.graph = Graph()

    def end_capture(self) -> Graph:
        graph: Graph = _state.graph
        _state.graph = None
        return graph

    def is_capturing(self) -> bool:
        return getattr(_state, "graph", None) is not None


Stream.null, Stream.ptds = Stream(null=True), Stream(ptds=True)


class ExternalStream(Stream):
    """A stream of another library."""

    _is_own = False

    def __init__(self, ptr: int, device_id: int = -1) -> None:
        self.ptr = ptr


def get_current_stream(device_id: int = -1) -> Stream:
    streams = getattr(_state, "streams", None)
    return streams[-1] if streams else Stream.null


class Event:
    """An event, which is over when it is recorded."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.ptr, self.time_s, self._timed = next(_addresses), 0.0, not disable_timing
        _events[self.ptr] = self

    def __del__(self) -> None:
        if _events is not None:  # the interpreter has not ended
            _events.pop(self.ptr, None)

    def record(self, stream: Any = None) -> None:
        self.time_s = time.perf_counter()

    def synchronize(self) -> None:
        """It is over."""

    done = True


def get_elapsed_time(begin: Event, end: Event) -> float:
    if not (begin._timed and end._timed):
        raise CUDARuntimeError("cudaErrorInvalidResourceHandle: these events do not time")
    return max(1e-6, 1e3 * (end.time_s - begin.time_s))


class Device:
    """The device."""

    compute_capability = "80"

    def __init__(self, device: Any = None) -> None:
        self.id = int(device or 0)

    def __int__(self) -> int:
        return self.id

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        """There is one device."""

    def use(self) -> None:
        """There is one device."""

    def synchronize(self) -> None:
        """Everything has been done already."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return self.id

    @property
    def mem_info(self) -> tuple[int, int]:
        return memory.limit[0] - memory.pool.total_bytes(), memory.limit[0]

    attributes = {"MultiProcessorCount": NUM_SMS}  # noqa: RUF012


class _Pinned(np.ndarray):
    """Page-locked memory."""

    mem: Any

    @property
    def ptr(self) -> int:
        return int(self.ctypes.data)


def alloc_pinned_memory(size: int) -> Any:
    return np.full(max(1, int(size)), memory.NEW, np.uint8).view(_Pinned)


class PinnedMemory:
    """Page-locked memory."""

    def __init__(self, size: int, flags: int = 0) -> None:
        self._array = alloc_pinned_memory(size)
        self.ptr, self.size, self.device_id = self._array.ptr, size, 0


def PinnedMemoryPointer(mem: PinnedMemory, offset: int) -> Any:
    return mem._array[offset:]


# ---- cupy.cuda.runtime


def _copy(to: int, source: int, size: int, kind: int, stream: int = 0) -> None:
    submit(lambda: ctypes.memmove(to, source, size), _named(stream))


def _named(address: int) -> Any:
    return Stream.null if address == 0 else ExternalStream(address)


def _set(to: int, value: int, size: int, stream: int = 0) -> None:
    submit(lambda: ctypes.memset(to, value, size), _named(stream))


def _event_record(event: int, stream: int) -> None:
    _alive(stream)
    _events[event].time_s = time.perf_counter()


def _alive(stream: int) -> None:
    """A driver follows a destroyed stream's address to memory that others may have by then."""
    if stream in _destroyed:
        _asked_for.append(f"the stream at {stream:#x} was asked for after it had been destroyed")
        raise CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")


def _is_capturing(stream: int) -> bool:
    _alive(stream)
    return getattr(_state, "graph", None) is not None


def misused() -> list[str]:
    """What has been done with streams that were destroyed, since this was last asked."""
    found = _asked_for[:]
    _asked_for.clear()
    return found


_blocks: dict[int, memory.Memory] = {}
_registered: set[int] = set()


def _malloc(size: int) -> int:
    block = memory.Memory(size)
    _blocks[block.ptr] = block
    return block.ptr


def _register(address: int, size: int, flags: int) -> None:
    if address in _registered:
        raise CUDARuntimeError(
            "cudaErrorHostMemoryAlreadyRegistered: part or all of the requested memory range is"
        )
    _registered.add(address)


PROPERTIES = {
    "name": b"host in place of a GPU", "major": 8, "minor": 0, "multiProcessorCount": NUM_SMS, "l2CacheSize": 1 << 20,
    "totalGlobalMem": memory.limit[0], "sharedMemPerBlock": 48 << 10, "sharedMemPerBlockOptin": 160 << 10,
    "sharedMemPerMultiprocessor": 164 << 10, "maxThreadsPerMultiProcessor": 2048, "warpSize": 32,
    "clockRate": 1_000_000, "maxThreadsPerBlock": 1024, "regsPerMultiprocessor": 65536,
    "memoryClockRate": 1_000_000, "memoryBusWidth": 128,
    "maxBlocksPerMultiProcessor": 32, "pciBusID": 0,
}  # fmt: skip

runtime: Any = types.ModuleType("cupy.cuda.runtime")
runtime.__dict__.update(
    CUDARuntimeError=CUDARuntimeError, getDeviceCount=lambda: 1, getDevice=lambda: 0, setDevice=lambda device: None,
    getDeviceProperties=lambda device: dict(PROPERTIES), deviceSynchronize=lambda: None,
    memGetInfo=lambda: Device().mem_info, malloc=_malloc, free=lambda address: _blocks.pop(address, None),
    memcpy=_copy, memcpyAsync=_copy, memset=_set, memsetAsync=_set, eventRecord=_event_record,
    eventQuery=lambda event: 0, eventSynchronize=lambda event: None,
    streamWaitEvent=lambda stream, event, flags=0: _alive(stream),
    streamSynchronize=_alive, streamIsCapturing=_is_capturing,
    hostRegister=_register, hostUnregister=_registered.discard, profilerStart=lambda: None, profilerStop=lambda: None,
    pointerGetAttributes=lambda address: types.SimpleNamespace(devicePointer=address, hostPointer=address, device=0),
    runtimeGetVersion=lambda: 12080, driverGetVersion=lambda: 12080, memcpyHostToDevice=1, memcpyDeviceToHost=2,
    memcpyDeviceToDevice=3, memcpyDefault=4, deviceGetAttribute=lambda attribute, device: 0,
)  # fmt: skip
