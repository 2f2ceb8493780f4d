"""Memory of one rank that its peers' kernels read: over NVLink on GPUs, as memory-mapped files on CPUs.

Everything that touches an interface of PyTorch or CUDA for shared memory stands in this module. There are two ways on
GPUs. ``"symmetric"`` is PyTorch's symmetric memory, whose interface is not stable yet; it knows the group of all
processes only. ``"ipc"`` is CUDA's inter-process handle of an allocation that is this block alone. NVLink multicast is
never used: the variables that switch it off are in the environment of every rank before torch starts
(:data:`~.ranks.backends.NCCL`), and the symmetric way is not taken without them.

Lifetime
--------
A block is one allocation, made once and outside all memory pools. Its memory is freed by :meth:`PeerMemory.close`
alone, which all ranks call: all have finished their reads, then all have let go of their peers' blocks, then each frees
its own. A block that is not closed stays until its process ends, so that a rank that has failed does not free what a
peer reads. When a process dies the others are ended (:mod:`.ranks`); the waits here end after the time-out of
collectives, so that no rank goes on alone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnnsample_lab import checks
from gnnsample_lab.device.capturing import wait_for_device
from gnnsample_lab.files import reserve
from gnnsample_lab.graph import roots

from .ranks.backends import NCCL
from .ranks.rank import Rank

WAYS = ("auto", "symmetric", "ipc", "file")
ALIGNMENT = 256
"""Bytes. Arrays in a block begin at multiples of it."""
_GRANULE = 2 << 20
"""Bytes. CUDA may cut smaller allocations out of one block, and a handle gives all of that block away."""
_HANDLE_BYTES = 64
_LEFT_S = 86_400.0
"""Seconds after which files that still have a name are those of ranks that were killed while they shared them."""
_open: set[PeerMemory] = set()
"""Blocks that were not closed: their memory must stay while peers may read it."""


def open_bytes() -> int:
    """Bytes of this process's blocks on its GPU that are not closed: no memory pool counts them."""
    return sum(_own_bytes(block) for block in _open if block.way != "file")


def _own_bytes(block: PeerMemory) -> int:
    """Bytes of this rank's allocation. Symmetric blocks are as large as the largest rank's."""
    return _block_bytes(block.sizes.max() if block.way == "symmetric" else block.sizes[block.index])


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to a multiple of :data:`ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class PeerMemory:
    """One block on every rank; each writes its own and reads all. All ranks make it, and close it, together.

    Args:
        rank: this rank.
        nbytes: bytes of this rank's block; ranks may differ.
        way: ``"symmetric"`` or ``"ipc"`` on GPUs, ``"file"`` on CPUs; ``"auto"`` is ``"symmetric"`` where it works on
            all ranks, else ``"ipc"``.
        method: who needs it, for messages.
        group: process group of the ranks that share memory, all on one host; None: all ranks of ``rank``'s world.

    Attributes:
        way: what it is.
        index, size: place of this rank among those that share memory, and how many they are.
        sizes: bytes of each rank's block, ``int64[size]``.
        pointers: address of each rank's block, valid in this process and, on a GPU, in its kernels.

    Raises:
        TypeError, ValueError: an argument of the wrong kind; ranks on several hosts, naming ``method``.
        RuntimeError: peers cannot read this rank's memory, or not all ranks came in time.
        PermissionError: on CPUs, no cache folder can be written to. OSError: its disk has no room.
    """

    def __init__(
        self, rank: Rank, nbytes: int, way: str = "auto", method: str = "direct", group: Any = None
    ) -> None:
        import torch.distributed as dist

        nbytes = checks.whole("nbytes", nbytes, 0)
        checks.choice("way", way, WAYS)
        on_gpu = rank.device != "cpu"
        if way != "auto" and (way == "file") == on_gpu:
            raise ValueError(f"way must be one for {rank.device} (got {way!r})")
        if group is None and rank.local_size < rank.world_size:
            raise ValueError(
                f"method={method!r} reads the memory of peers, which works between the ranks of one host "
                f"(got {rank.world_size} ranks, {rank.local_size} a host)"
            )
        self.rank, self.group, self.closed = rank, rank.group if group is None else group, False
        self.index, self.size = 0, 1
        if rank.world_size > 1:  # one that is alone may have no group
            self.index, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.sizes = self.exchanged([nbytes])[:, 0]
        self.pointers: list[int] = []
        self._owners: list[Any] = []  # per rank: what holds the memory or its mapping
        if not on_gpu:
            self.way = "file"
            _shared_on_cpus(self)
        else:
            self.way = _shared_on_gpus(self, way)
        _open.add(self)
        self.barrier()

    def exchanged(self, values: Sequence[int]) -> np.ndarray:
        """A few integers of every rank, ``int64[size, len(values)]``; all ranks call it with as many.

        Args:
            values: integers of 64 bits.

        Raises:
            RuntimeError: not all ranks came in time.
        """
        if self.size == 1:
            return np.array([list(values)], dtype=np.int64)
        import torch
        import torch.distributed as dist

        mine = torch.tensor(list(values), dtype=torch.int64, device=self.rank.device)
        every = torch.empty((self.size, len(mine)), dtype=torch.int64, device=self.rank.device)
        dist.all_gather(list(every.unbind()), mine, group=self.group)
        return np.asarray(every.cpu())

    def array(self, dtype: Any, shape: Any, offset: int = 0) -> Any:
        """A view of this rank's block; CuPy on a GPU, else NumPy.

        Args:
            dtype: of the elements.
            shape: of the array.
            offset: bytes from the start of the block.

        Raises:
            ValueError: it does not fit the block, or the block is closed.
        """
        return self.array_of(self.index, dtype, shape, offset)

    def array_of(self, owner: int, dtype: Any, shape: Any, offset: int = 0) -> Any:
        """A view of the block of rank ``owner``. Those of peers are for reading; NumPy refuses writes.

        Args:
            owner: whose block.
            dtype, shape, offset: as for :meth:`array`.

        Raises:
            ValueError: there is no such rank, it does not fit the block, or the block is closed.
        """
        owner = checks.whole("owner", owner, 0, self.size - 1)
        dtype = np.dtype(dtype)
        shape = tuple(int(n) for n in shape) if np.iterable(shape) else (int(shape),)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if self.closed:
            raise ValueError("the peer memory is closed")
        if min(shape, default=0) < 0 or offset < 0 or offset % dtype.itemsize:
            raise ValueError(f"offset must be a multiple of {dtype.itemsize} (got {offset}, shape {shape})")
        if offset + nbytes > self.sizes[owner]:
            raise ValueError(
                f"shape must fit the block of rank {owner}, {self.sizes[owner]} bytes (got {nbytes} bytes at {offset})"
            )
        if self.way == "file":
            return np.frombuffer(self._owners[owner], dtype, nbytes // dtype.itemsize, offset).reshape(shape)
        import cupy

        memory = cupy.cuda.UnownedMemory(
            self.pointers[owner] + offset, max(1, nbytes), self, cupy.cuda.Device().id
        )
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))

    def barrier(self) -> None:
        """Wait until the work that every rank had on its device is done; the wait is bounded as a collective's is.

        What a rank has written to its block before is then there for all.

        Raises:
            RuntimeError: not all ranks came in time.
        """
        if self.way != "file":
            wait_for_device()
        if self.group is self.rank.group:
            self.rank.barrier()
        else:
            self.exchanged([0])

    def close(self) -> None:
        """Free the blocks; all ranks call it. Arrays of this memory must not be used any more. May be called twice.

        Raises:
            RuntimeError: not all ranks came in time; then nothing is freed.
        """
        if self.closed:
            return
        self.barrier()  # all reads are done
        self.closed = True
        mine = self.index
        for owner in range(self.size):
            if owner != mine:
                _let_go(self.way, self.pointers[owner])
                self._owners[owner] = None
        self.barrier()  # nobody has this rank's block open
        if self.way == "ipc":
            import cupy

            cupy.cuda.runtime.free(self.pointers[mine])
        self._owners.clear()
        _open.discard(self)

    def __enter__(self) -> PeerMemory:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:  # after an error the other ranks may not come
            self.close()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"PeerMemory({self.way}: {int(self.sizes.sum()):,} bytes of {self.size} ranks{state})"


def _let_go(way: str, pointer: int) -> None:
    if way == "ipc":
        import cupy

        cupy.cuda.runtime.ipcCloseMemHandle(pointer)


def _agreed(memory: PeerMemory, problem: Any) -> bool:
    """Whether no rank has a problem."""
    return not memory.exchanged([problem is not None]).any()


# ---- GPUs -------------------------------------------------------------------------------------------------------


def _shared_on_gpus(memory: PeerMemory, way: str) -> str:
    """Make the blocks and open the peers'; returns the way that worked on all ranks."""
    if memory.size == 1 and way != "symmetric":  # nobody to share with
        import cupy

        memory.pointers, memory._owners = [cupy.cuda.runtime.malloc(_block_bytes(memory.sizes[0]))], [None]
        return "ipc"
    problems = []
    for name, make in (("symmetric", _symmetric), ("ipc", _ipc)):
        if way not in ("auto", name):
            continue
        problem = None
        try:
            make(memory)
        except Exception as error:  # whatever an unstable interface raises
            problem = f"{type(error).__name__}: {error}"
        if _agreed(memory, problem):
            return name
        memory.pointers, memory._owners = [], []
        problems.append(f"{name}: {problem or 'it failed on another rank'}")
    raise RuntimeError(
        f"the GPUs of {memory.size} ranks cannot read each other's memory ({'; '.join(problems)})"
    )


def _symmetric(memory: PeerMemory) -> None:
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import _SymmetricMemory

    problem = None
    if memory.size != dist.get_world_size():
        problem = "symmetric memory is for all processes of a start"
    elif any(os.environ.get(name) != value for name, value in NCCL.items()):
        problem = f"NVLink multicast is not switched off ({', '.join(NCCL)})"
    if not _agreed(memory, problem):  # a rank that raised alone would leave its peers at the rendezvous
        raise RuntimeError(problem or "another rank cannot")
    group: Any = dist.group.WORLD
    size = _block_bytes(memory.sizes.max())  # one size for all, as its name says
    # Not symmetric_memory.empty, which newer versions serve from a pool.
    block = _SymmetricMemory.empty_strided_p2p((size,), (1,), torch.uint8, torch.device(memory.rank.device))
    handle = _SymmetricMemory.rendezvous(block, group.group_name)
    memory.pointers = [int(pointer) for pointer in handle.buffer_ptrs]
    memory._owners = [(block, handle)] * memory.size


def _ipc(memory: PeerMemory) -> None:
    import cupy
    import torch
    import torch.distributed as dist

    runtime, device = cupy.cuda.runtime, memory.rank.device
    mine, handle, problem = 0, bytes(_HANDLE_BYTES), None
    try:
        mine = runtime.malloc(_block_bytes(memory.sizes[memory.index]))
        handle = bytes(runtime.ipcGetMemHandle(mine))
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    given = torch.frombuffer(bytearray(handle), dtype=torch.uint8).to(device)
    found = torch.empty((memory.size, _HANDLE_BYTES), dtype=torch.uint8, device=device)
    dist.all_gather(list(found.unbind()), given, group=memory.group)
    pointers = [0] * memory.size
    if _agreed(memory, problem):
        try:
            for owner, row in enumerate(found.cpu().numpy()):
                pointers[owner] = mine if owner == memory.index else runtime.ipcOpenMemHandle(row.tobytes())
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if _agreed(memory, problem):
            memory.pointers, memory._owners = pointers, [None] * memory.size
            return
    for owner, pointer in enumerate(pointers):
        if pointer and owner != memory.index:
            runtime.ipcCloseMemHandle(pointer)
    memory.exchanged([0])  # all have let go
    if mine:
        runtime.free(mine)
    raise RuntimeError(problem or "it failed on another rank")


def _block_bytes(nbytes: int) -> int:
    return max(1, -(-int(nbytes) // _GRANULE)) * _GRANULE


# ---- CPUs -------------------------------------------------------------------------------------------------------


def _shared_on_cpus(memory: PeerMemory) -> None:
    """Blocks as files of the cache folder; once all ranks have mapped them the files have no name any more."""
    token = int(memory.exchanged([secrets.randbits(62)])[0, 0])
    base, problem = roots.data_root(), None
    place = roots.cache_folder(base)
    folder = None if place is None else place / f"peer-memory-{token:x}"
    try:
        if folder is None:
            raise PermissionError(f"root {str(base)!r} has no cache folder that can be written to")
        _remove_left(folder.parent)
        folder.mkdir(exist_ok=True)
        mine = _path(folder, memory.index)
        with mine.open("xb") as file:
            reserve(file, max(1, int(memory.sizes[memory.index])), mine)
    except OSError as error:
        problem = error
    try:
        if not _agreed(memory, problem):
            raise problem or RuntimeError("another rank could not write its file into the cache folder")
        assert folder is not None
        maps = [
            np.memmap(_path(folder, owner), np.uint8, "r+" if owner == memory.index else "r")
            for owner in range(memory.size)
        ]
        memory.barrier()  # all have mapped all
    finally:
        if folder is not None:
            with contextlib.suppress(OSError):
                _path(folder, memory.index).unlink()
            with contextlib.suppress(OSError):  # the last one succeeds
                folder.rmdir()
    memory.pointers, memory._owners = [mapped.ctypes.data for mapped in maps], list(maps)


def _remove_left(place: Path) -> None:
    """Remove files of ranks that were killed before these had no name any more."""
    for left in place.glob("peer-memory-*"):
        with contextlib.suppress(OSError):  # another rank removes it, too
            if time.time() - left.stat().st_mtime > _LEFT_S:
                shutil.rmtree(left, ignore_errors=True)


def _path(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank:05d}.bin"
