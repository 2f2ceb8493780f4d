"""CuPy and torch as far as streams, events and memory pools go, with books of what runs before what.

Every stream has a clock, and knows of every other stream up to which of its times it comes after it (a vector clock).
A pool hands a freed block on to the next user of the stream that it was allocated on, as CuPy's does. A read or write
that is not ordered behind what it depends on raises :class:`Race`.
"""

from __future__ import annotations

import contextlib
import threading
import types
from typing import Any


class Race(AssertionError):
    """Two accesses to the same memory with no order between them, one of them a write."""


class World:
    """One GPU. ``cupy`` and ``torch`` are the modules to put in place of the real ones."""

    def __init__(self) -> None:
        self.clocks: dict[int, dict[int, int]] = {0: {}}
        self.events: dict[int, dict[int, int]] = {}
        self.capturing: set[int] = set()
        self.calls: list[tuple[Any, ...]] = []
        self.free: dict[int, list[Block]] = {}
        self.here = threading.local()
        self.torch_initialized = True
        self.synchronized = 0
        self.fail: BaseException | None = None
        self.cupy, self.torch = _cupy(self), _torch(self)

    # ---- streams and events

    def new_stream(self) -> int:
        address = 16 * (len(self.clocks) + 1)
        self.clocks[address] = {}
        return address

    def tick(self, stream: int) -> int:
        clock = self.clocks[stream]
        clock[stream] = clock.get(stream, 0) + 1
        return clock[stream]

    def behind(self, stream: int, other: int, time: int) -> bool:
        return self.clocks[stream].get(other, 0) >= time

    def record(self, event: int, stream: int) -> None:
        if self.fail is not None:
            error, self.fail = self.fail, None
            raise error
        self.calls.append(("record", stream))
        self.events[event] = dict(self.clocks[stream])

    def wait(self, stream: int, event: int) -> None:
        self.calls.append(("wait", stream))
        _merge(self.clocks[stream], self.events[event])

    def synchronize(self) -> None:
        self.synchronized += 1
        for clock in self.clocks.values():
            for other in list(self.clocks.values()):
                _merge(clock, other)

    # ---- memory

    def alloc(self, size: int) -> Any:
        stream = self.current.ptr
        blocks = self.free.setdefault(stream, [])
        block = blocks.pop() if blocks else Block()
        memory = Pooled(self, block, stream)
        return self.cupy.cuda.MemoryPointer(memory, 0)

    @property
    def current(self) -> Any:
        return getattr(self.here, "cupy", self.cupy.cuda.Stream.null)

    @property
    def current_torch(self) -> int:
        return getattr(self.here, "torch", 0)

    def write(self, array: Any, stream: int) -> None:
        self._access(array, stream, True)

    def read(self, array: Any, stream: int) -> None:
        self._access(array, stream, False)

    def _access(self, array: Any, stream: int, writes: bool) -> None:
        block = array.data.mem
        while not isinstance(block, Block):
            block = block.block if isinstance(block, Pooled) else block._owner._memory
            block = getattr(block, "mem", block) if not hasattr(block, "data") else block.data.mem
        for other, time, wrote in block.accesses:
            if (writes or wrote) and not self.behind(stream, other, time):
                raise Race(
                    f"{'write' if writes else 'read'} on {stream} is not behind time {time} of {other}"
                )
        block.accesses.append((stream, self.tick(stream), writes))


def _merge(clock: dict[int, int], other: dict[int, int]) -> None:
    for stream, time in other.items():
        clock[stream] = max(clock.get(stream, 0), time)


class Block:
    """A piece of device memory: accesses as (stream, time, whether it wrote)."""

    def __init__(self) -> None:
        self.accesses: list[tuple[int, int, bool]] = []


class Pooled:
    """A block in use; the pool has it again when this goes."""

    def __init__(self, world: World, block: Block, stream: int) -> None:
        self.world, self.block, self.stream = world, block, stream
        self.ptr, self.size = id(block), 512

    def __del__(self) -> None:
        self.world.free[self.stream].append(self.block)


def _cupy(world: World) -> Any:
    class Stream:
        null: Any

        def __init__(self, null: bool = False, **_: Any) -> None:
            self.ptr = 0 if null else world.new_stream()

        def wait_event(self, event: Any) -> None:
            world.wait(self.ptr, event.ptr)

        def __enter__(self) -> Any:
            self.before = world.current
            world.here.cupy = self
            return self

        def __exit__(self, *_: Any) -> None:
            world.here.cupy = self.before

    class Event:
        def __init__(self, disable_timing: bool = False) -> None:
            self.ptr = id(self)

    class MemoryPointer:
        def __init__(self, mem: Any, offset: int) -> None:
            self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, 0

        def __add__(self, offset: int) -> Any:
            return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    class UnownedMemory:
        def __init__(self, ptr: int, size: int, owner: Any, device_id: int) -> None:
            self.ptr, self.size, self._owner = ptr, size, owner

    class ndarray:
        def __init__(self, shape: Any, dtype: Any, memptr: Any, strides: Any = None) -> None:
            self.shape, self.dtype, self.data, self.strides = shape, dtype, memptr, strides
            self.flags = types.SimpleNamespace(c_contiguous=True)
            self.nbytes = 8

    def empty(shape: Any, dtype: Any = None) -> Any:
        return ndarray(shape, dtype, cuda.get_allocator()(8))

    @contextlib.contextmanager
    def using_allocator(allocator: Any) -> Any:
        before = cuda.get_allocator()
        world.here.allocator = allocator
        try:
            yield
        finally:
            world.here.allocator = before

    # What `is this CuPy's` looks at.
    ndarray.__module__ = "cupy"
    cuda = types.SimpleNamespace(
        Stream=Stream, Event=Event, MemoryPointer=MemoryPointer, UnownedMemory=UnownedMemory,
        get_current_stream=lambda: world.current, using_allocator=using_allocator,
        get_allocator=lambda: getattr(world.here, "allocator", world.alloc),
        runtime=types.SimpleNamespace(
            getDevice=lambda: 0, eventRecord=world.record, streamWaitEvent=world.wait,
            eventQuery=lambda event: 600, eventSynchronize=lambda event: world.calls.append(("host", event)),
            streamIsCapturing=lambda stream: stream in world.capturing, CUDARuntimeError=RuntimeError,
            malloc=lambda size: 1, free=lambda address: world.synchronize(),
        ),
    )  # fmt: skip
    Stream.null = Stream(null=True)
    module = types.ModuleType("cupy")
    module.cuda, module.ndarray, module.empty = cuda, ndarray, empty  # type: ignore[attr-defined]
    return module


def _torch(world: World) -> Any:
    """Streams of torch call ``event.wait(stream)`` in ``wait_event``, as torch's do."""

    class Stream:
        def __init__(self) -> None:
            self.cuda_stream = world.new_stream()

        def wait_event(self, event: Any) -> None:
            event.wait(self)

    @contextlib.contextmanager
    def on(stream: Any) -> Any:
        before = world.current_torch
        world.here.torch = stream.cuda_stream
        try:
            yield
        finally:
            world.here.torch = before

    module = types.ModuleType("torch")
    module.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        Stream=Stream,
        stream=on,
        is_initialized=lambda: world.torch_initialized,
        current_stream=lambda device=None: types.SimpleNamespace(cuda_stream=world.current_torch),
    )
    module._C = types.SimpleNamespace()  # type: ignore[attr-defined]
    return module
