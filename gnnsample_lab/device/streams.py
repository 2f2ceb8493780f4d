"""Order between CUDA streams: which streams make and read a result, and when its memory may be reused.

Every function of this package that returns GPU arrays follows these rules:

* Work runs on CuPy's current stream. It waits for the work that torch's current stream has at the call, and torch's
  current stream waits for it (:class:`call`). If both are the same stream, as they are by default, this costs nothing.
* A result carries a :class:`Ready`: the stream that made it and the streams that have read it. Exports and loaders
  call :meth:`Ready.order`, by which the streams that are current then wait. Any other stream waits by
  ``ready.wait(stream)``.
* The memory of a result is leased (:func:`lease`). A memory pool hands a freed block on to the next user *of the
  stream that the block was allocated on*, in the belief that this stream's order protects it. So when the last array
  or tensor in the block goes, that stream waits for the streams that have read it, and for CuPy's and torch's current
  stream at that moment; then the block goes back to the pool. Tensors made by DLPack hold the array, and with it the
  lease.
* Scratch memory that outlives a call belongs to a :class:`Turns`: a call on another stream than the last waits, on the
  device, for the last.

Events are recorded late: on the stream that did the work, when another stream first asks to wait, and not when the work
is launched. Such an event comes after all the work that is asked for. If one stream does everything, there is no event.

A stream must live as long as the results that were made or read on it. The objects here keep CuPy's streams alive, and
torch's streams live as long as the process. CUDA's per-thread default stream is a different stream in every thread:
results made there are ordered, but a result that only one thread has read there must be dropped by that thread.

This module imports neither CuPy nor torch before there is a GPU array, and it never imports torch.
"""

from __future__ import annotations

import contextlib
import math
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import runtime
from .capturing import wait_for_device
from .locks import check_process

_PER_THREAD = 2
"""``cudaStreamPerThread``: another thread that records an event there would record it on its own stream."""
_DEFAULTS = (0, 1)
"""The legacy default stream, by its two names."""


_torch_on_gpu: tuple[Any, Any, Any] = (None, None, None)
"""The module ``torch`` once it has used the GPU, its function from a device to its current stream's address, and CuPy's
that tells the current device."""


def _torch_stream() -> int | None:
    """Address of torch's current stream, None where torch has not used the GPU. Never imports torch."""
    global _torch_on_gpu
    torch = sys.modules.get("torch")
    known, raw, device = _torch_on_gpu
    if torch is not known or torch is None:
        cuda = getattr(torch, "cuda", None)
        if cuda is None or not cuda.is_initialized():
            return None
        import cupy

        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # type: ignore[union-attr]
        raw = raw or (lambda device: cuda.current_stream(device).cuda_stream)
        device = cupy.cuda.runtime.getDevice
        _torch_on_gpu = torch, raw, device
    return int(raw(device()))


def _address(stream: Any) -> int:
    """The ``cudaStream_t`` of a CuPy or torch stream, of any object with ``__cuda_stream__``, or of an integer."""
    for name in ("ptr", "cuda_stream"):
        found = getattr(stream, name, None)
        if found is not None:
            return int(found)
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    raise TypeError(f"stream must be a CuPy or torch stream (got {type(stream).__name__})")


def _record(address: int) -> Any:
    """A new event after all work of the stream at ``address``."""
    import cupy

    event = cupy.cuda.Event(disable_timing=True)
    cupy.cuda.runtime.eventRecord(event.ptr, address)
    return event


def _wait(address: int, event: Any) -> None:
    import cupy

    cupy.cuda.runtime.streamWaitEvent(address, event.ptr)


def _capturing(address: int) -> bool:
    import cupy

    return address not in _DEFAULTS and bool(cupy.cuda.runtime.streamIsCapturing(address))


def _current() -> tuple[Any, int | None]:
    """CuPy's current stream, and the address of torch's if that is another."""
    import cupy

    stream, other = cupy.cuda.get_current_stream(), _torch_stream()
    return stream, None if other == stream.ptr else other


def is_per_thread() -> bool:
    """Whether CuPy's current stream is CUDA's per-thread default stream, another one in every thread."""
    import cupy

    return int(cupy.cuda.get_current_stream().ptr) == _PER_THREAD


_kept: dict[object, Any] = {}


class _Keeper:
    """Keeps streams alive until it goes itself.

    An attribute would do, but for results in a cycle of references, as an exception's traceback makes them: Python's
    collector finalizes all objects of a cycle in any order, and a stream that is destroyed before the memory that it
    has read can no longer be waited for: the driver would follow its address. What this module's table refers to is in
    no cycle.
    """

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: dict[int, object] = {}

    def keep(self, stream: Any) -> None:
        if stream is not None and not isinstance(stream, int) and id(stream) not in self._marks:
            mark = self._marks[id(stream)] = object()
            _kept[mark] = stream

    def __del__(self) -> None:
        for mark in self._marks.values():
            _kept.pop(mark, None)


class _Done:
    """:data:`DONE`, the :class:`Ready` of results in host memory: complete, with nothing to wait for."""

    ptr = 0
    done = True

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """True: the result is complete."""
        return True

    def order(self) -> None:
        """Nothing to wait for."""

    def note(self) -> None:
        """Nothing to wait for."""

    def settle(self) -> None:
        """Nothing to wait for."""

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _done, ()

    def __repr__(self) -> str:
        return "Ready(done)"


DONE = _Done()


def _done() -> _Done:
    return DONE


class Ready:
    """An event after the work that makes a result, and the streams that have read the result.

    Usable like an event of CuPy or torch: ``cupy_stream.wait_event(batch.ready)``,
    ``torch_stream.wait_event(batch.ready)``, :meth:`wait`, :meth:`query`, :meth:`synchronize`, :attr:`ptr`. Results in
    host memory have an object with the same methods, for which nothing ever waits.

    Prefer :meth:`wait` (torch's ``wait_event`` calls it) to CuPy's ``wait_event``: it records the stream as a reader,
    so that the result's memory is not reused before this stream has finished with it.

    The event is recorded when it is first asked for, on the stream that made the result. It then comes after all the
    work that this stream had by that time.

    Attributes:
        stream: CuPy's stream that makes the result; home: its address.
        streams: other streams that may read the result, by address: torch's that was current when it was made, and
            those that have waited for it.
    """

    def __init__(self) -> None:
        self.stream, other = _current()
        self.home = int(self.stream.ptr)
        self._keeper: _Keeper | None = None
        if self.home not in _DEFAULTS:
            self._keep(self.stream)
        self.streams: dict[int, Any] = {} if other is None else {other: None}
        self._waited: set[int] = set()
        self._event = _record(self.home) if self.home == _PER_THREAD else None

    @property
    def ptr(self) -> int:
        """The raw ``cudaEvent_t``."""
        if self._event is None:
            self._event = _record(self.home)
        return int(self._event.ptr)

    @property
    def done(self) -> bool:
        """Whether the result is complete, as CuPy's events have it."""
        import cupy

        return int(cupy.cuda.runtime.eventQuery(self.ptr)) == 0

    def query(self) -> bool:
        """Whether the result is complete, as torch's events have it."""
        return self.done

    def synchronize(self) -> None:
        """The host waits until the result is complete."""
        import cupy

        cupy.cuda.runtime.eventSynchronize(self.ptr)

    def wait(self, stream: Any = None) -> None:
        """Let ``stream`` wait for the result, on the device; the host goes on.

        Args:
            stream: a stream of CuPy or torch, or its address; None for CuPy's and torch's current streams.

        Raises:
            TypeError: not a stream.
        """
        if stream is None:
            self.order()
        else:
            self._admit(_address(stream), stream)

    def order(self) -> None:
        """Let CuPy's and torch's current streams wait for the result, where they are not the stream that made it."""
        self._order(*_current())

    def _order(self, stream: Any, other: int | None) -> None:
        """:meth:`order` for the streams that :func:`_current` has given."""
        self._admit(stream.ptr, stream)
        if other is not None:
            self._admit(other, None)

    def _keep(self, stream: Any) -> None:
        if self._keeper is None:
            self._keeper = _Keeper()
        self._keeper.keep(stream)

    def _admit(self, address: int, stream: Any) -> None:
        if address == self.home:
            return
        if address not in self.streams and address not in _DEFAULTS:
            self._keep(stream)
        self.streams[address] = stream
        if address in self._waited:  # a stream that has waited once is ordered after the event for good
            return
        if self._event is None:
            self._event = _record(self.home)
        _wait(address, self._event)
        self._waited.add(address)  # only now: an interrupted wait must be repeated

    def note(self) -> None:
        """Record the event now: who waits later does not wait for what this stream is given from here on."""
        if self._event is None:
            self._event = _record(self.home)

    def settle(self) -> None:
        """Forget the readers: the caller has made the stream that made the result wait for what they read."""
        self.streams.clear()

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return _done, ()  # a copy of the result is made by whoever copies, and read by nobody yet

    def __repr__(self) -> str:
        return f"Ready(stream={self.home:#x})"


class Turns:
    """Scratch memory that calls use in turn, on any streams. The host must hold one lock around all calls.

    Args:
        reads: other arrays that the calls read, for example a graph's; :func:`order` is called for them on each new
            stream.

    Attributes:
        streams: all streams that calls have used, by address.
    """

    def __init__(self, *reads: Any) -> None:
        self.streams: dict[int, Any] = {}
        self._keeper = _Keeper()
        self._reads = [a for a in reads if a is not None]
        self._last: int | None = None
        self._event: Any = None

    def add(self, *others: Any) -> None:
        """Note CuPy streams that calls use besides the current one."""
        for stream in others:
            self.keep(stream)
            self.streams[int(stream.ptr)] = stream

    def keep(self, stream: Any) -> None:
        """Let a CuPy stream live as long as this object, in a cycle of references, too."""
        if int(stream.ptr) not in _DEFAULTS:
            self._keeper.keep(stream)

    def take(self) -> None:
        """Begin a call: CuPy's current stream waits for the call before, if that used another stream."""
        import cupy

        stream = cupy.cuda.get_current_stream()
        address = int(stream.ptr)
        if address == self._last != _PER_THREAD:
            return
        if address not in self.streams:
            order(*self._reads)
            self.keep(stream)
        if self._last is not None:
            _wait(address, _record(self._last) if self._event is None else self._event)
        # From here on this call may launch, even if it is interrupted.
        self.streams[address] = stream
        self._last, self._event = address, None

    def leave(self) -> None:
        """End a call. Needed only on CUDA's per-thread default stream, where another thread cannot record an event."""
        if self._last == _PER_THREAD:
            self._event = _record(_PER_THREAD)


class _Lease:
    """Owns a block of a memory pool and returns it to the pool, ordered after the last reader.

    ``users`` is the :class:`Ready` or :class:`Turns` of what lies in the block.
    """

    __slots__ = ("_memory", "_stream", "users")

    def __init__(self, memory: Any, users: Any) -> None:
        self._memory, self.users = memory, users
        if isinstance(users, Ready):
            self._stream = users.stream
        else:
            import cupy

            self._stream = cupy.cuda.get_current_stream()
            users.keep(self._stream)

    def __del__(self) -> None:
        if sys.is_finalizing():
            return
        try:
            home = self._stream.ptr
            stream, other = _current()
            readers = self.users.streams
            if not readers and other is None and stream.ptr == home:
                return
            late = {stream.ptr, *readers}
            if other is not None:
                late.add(other)
            late.discard(home)
            if late and not _capturing(home):
                for address in late:
                    # Captured work does not run now; the user of a CUDA graph keeps the arrays that it reads.
                    if not _capturing(address):
                        _wait(home, _record(address))
        except BaseException:  # a destroyed stream, or an interrupt: wait for all work of the device
            with contextlib.suppress(Exception):
                wait_for_device()


def lease(memory: Any, users: Any) -> Any:
    """Lease ``memory``: it returns to its pool ordered after its readers.

    Args:
        memory: ``cupy.cuda.MemoryPointer``, allocated on the stream of ``users`` (for :class:`Turns`: just now, on
            CuPy's current stream).
        users: the :class:`Ready` or :class:`Turns` that knows the readers.

    Returns:
        A ``cupy.cuda.MemoryPointer`` to the same address. Whoever holds it, or an array in it, holds the block.
    """
    from cupy import cuda

    held = _Lease(memory, users)
    return cuda.MemoryPointer(cuda.UnownedMemory(memory.ptr, memory.mem.size, held, memory.device_id), 0)


def leased(array: Any, users: Any) -> Any:
    """A view of a CuPy ``array`` in leased memory; arguments as those of :func:`lease`."""
    import cupy

    if not array.nbytes:
        return array
    data, cuda = array.data, cupy.cuda
    memory = cuda.UnownedMemory(data.ptr, array.nbytes, _Lease(array, users), data.device_id)
    strides = None if array.flags.c_contiguous else array.strides
    return cupy.ndarray(array.shape, array.dtype, cuda.MemoryPointer(memory, 0), strides)


def empty(shape: Any, dtype: Any, users: Any) -> Any:
    """As ``cupy.empty``, in leased memory."""
    import cupy

    size = math.prod(shape if isinstance(shape, tuple) else (shape,)) * np.dtype(dtype).itemsize
    if not size:
        return cupy.empty(shape, dtype)
    return cupy.ndarray(shape, dtype, lease(cupy.cuda.alloc(size), users))


@contextlib.contextmanager
def leasing(users: Any = None) -> Iterator[Any]:
    """Lease all memory that CuPy allocates inside, on this thread, to ``users`` (default: a new :class:`Ready`)."""
    from cupy import cuda

    users = Ready() if users is None else users
    allocate = cuda.get_allocator()
    with cuda.using_allocator(lambda size: lease(allocate(size), users)):
        yield users


def ready_of(array: Any) -> Any:
    """The :class:`Ready` of a CuPy array in leased memory, else None."""
    if type(array).__module__.partition(".")[0] != "cupy":  # NumPy's `data` fails for dates
        return None
    memory = getattr(getattr(array, "data", None), "mem", None)
    users = getattr(getattr(memory, "_owner", None), "users", None)
    return users if isinstance(users, Ready) else None


def order(*arrays: Any) -> None:
    """Let CuPy's and torch's current streams wait for the work that makes ``arrays``; ignores all but leased arrays.

    An array that is not leased is assumed to be complete for CuPy's current stream, as CuPy itself assumes.
    """
    here = None
    for array in arrays:
        ready = ready_of(array)
        if ready is not None:
            here = here or _current()
            ready._order(*here)


def exported(array: Any) -> Any:
    """A CuPy array for export to torch by DLPack: the current streams wait for it, and its memory is leased.

    An array that is not leased yet is assumed to have been made on CuPy's current stream. Other objects are returned
    unchanged.
    """
    if type(array).__module__.split(".")[0] != "cupy":
        return array
    ready = ready_of(array)
    if ready is None:
        ready = Ready()
        array = leased(array, ready)
    ready.order()
    return array


class call:
    """A context for work on CuPy's current stream: it waits for torch's current stream, which then waits for the work.

    ``call(False)`` does nothing, for work on the CPU.

    Raises:
        RuntimeError: in a process forked from one that used the GPU; the message says to use ``spawn``.
    """

    __slots__ = ("_here", "_on_gpu", "_there")

    def __init__(self, on_gpu: bool = True) -> None:
        self._on_gpu = on_gpu
        self._there: int | None = None

    def __enter__(self) -> None:
        if not self._on_gpu:
            return
        check_process("cuda")
        stream, self._there = _current()
        if self._there is not None:
            self._here = stream.ptr
            _wait(self._here, _record(self._there))

    def __exit__(self, *_: object) -> None:
        # Also if the work has failed: launched parts of it may read memory that torch frees next.
        if self._there is not None:
            _wait(self._there, _record(self._here))


@contextlib.contextmanager
def results(on_gpu: bool) -> Iterator[Any]:
    """:class:`call` and :func:`leasing` at once, for work of many CuPy calls; yields the :class:`Ready`.

    ``results(False)`` does nothing, for work on the CPU, and yields :data:`DONE`.
    """
    if not on_gpu:
        yield DONE
        return
    with call(), leasing() as ready:
        yield ready


_external: dict[int, Any] = {}


_known: dict[tuple[int, int], Any] = {}


def current_torch_stream() -> Any:
    """``torch.cuda.current_stream()``, at a tenth of its cost: torch's streams live as long as the process."""
    import cupy
    import torch

    address = _torch_stream()
    if address is None:
        return torch.cuda.current_stream()
    key = (cupy.cuda.runtime.getDevice(), address)  # the default stream has the same address on every GPU
    if key not in _known:
        _known[key] = torch.cuda.current_stream()
    return _known[key]


def own_torch_stream(priority: int = 0) -> Any:
    """A new stream for torch on its current GPU, which lives as long as the process.

    ``torch.cuda.Stream()`` is no new stream but one of 32, handed out in turn: the thirty-third is the first again.
    Work there waits for strangers' work, and whoever waits for it while a stranger captures ends that capture.

    Args:
        priority: the lower, the earlier its blocks run; 0 is the lowest.
    """
    import cupy
    import torch

    made = cupy.cuda.Stream(non_blocking=True, priority=priority)
    _own.append(made)
    return torch.cuda.ExternalStream(made.ptr, device=torch.cuda.current_device())


_own: list[Any] = []
_idle: dict[int, list[Any]] = {}
"""Streams that nobody has borrowed now, by GPU."""


@contextlib.contextmanager
def borrowed_torch_stream() -> Iterator[Any]:
    """A stream for torch that nobody else uses while the block runs. All its work must be ordered by then."""
    stream, idle = _idle_torch_stream()
    try:
        yield stream
    finally:
        idle.append(stream)


def lent_torch_stream(owner: Any) -> Any:
    """A stream for torch that nobody else uses until ``owner`` is dropped, which can be referred to weakly.

    All its work must be ordered by then.
    """
    stream, idle = _idle_torch_stream()
    weakref.finalize(owner, idle.append, stream).atexit = False
    return stream


def _idle_torch_stream() -> tuple[Any, list[Any]]:
    """A stream that nobody uses now, and the list that it goes back to."""
    import torch

    idle = _idle.setdefault(torch.cuda.current_device(), [])
    try:
        return idle.pop(), idle  # one step for other threads, too
    except IndexError:
        return own_torch_stream(), idle


class torch_stream:
    """A context in which PyTorch's current CUDA stream is CuPy's, too, so that work of both keeps its order.

    ``with`` gives the ``cupy.cuda`` stream. Without a GPU, or without CuPy, there is nothing to do and it gives None.
    """

    __slots__ = ("_entered",)

    def __enter__(self) -> Any:
        self._entered = None
        if not runtime.cuda_available():
            return None
        import cupy

        here = cupy.cuda.get_current_stream()
        # PyTorch's own answer takes ten times as long, and this is asked many times a step.
        address = _torch_stream()
        if address is None:
            import torch

            if not torch.cuda.is_available():
                return here
            address = int(torch.cuda.current_stream().cuda_stream)
        if here.ptr == address:
            return here
        if address and address not in _external:
            _external[address] = cupy.cuda.ExternalStream(address)
        self._entered = _external[address] if address else cupy.cuda.Stream.null
        return self._entered.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._entered is not None:
            self._entered.__exit__(*error)
