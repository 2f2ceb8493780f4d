"""What a run holds of a device's memory, by who holds it: the one account that budgets, records and suites read.

Counted are graph and cache (in CuPy's pool), what CuPy's pool has besides, PyTorch's allocator, and memory that other
ranks read, which lies outside pools. What the driver needs for itself (the CUDA context, loaded kernels, NCCL's
buffers) is stated apart (:func:`apart`): a paper's card has it, too, and no budget here is made of it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gnnsample_lab.device import pools, runtime, streams
from gnnsample_lab.device.arrays import is_cuda_array
from gnnsample_lab.device.capturing import wait_for_device
from gnnsample_lab.readable import size


class Held(NamedTuple):
    """Bytes of device memory.

    ``cupy``: of CuPy's pool: graph, cache, samples. ``torch``: of PyTorch's allocator: model, activations, gradients,
    rows of a mini-batch. ``peers``: what other ranks read, outside pools.
    """

    cupy: int = 0
    torch: int = 0
    peers: int = 0

    @property
    def total(self) -> int:
        return self.cupy + self.torch + self.peers

    def less(self, others: Held) -> Held:
        """Without what ``others`` hold; where they have given some back meanwhile, not below nothing.

        A run so small that it fits into what is free between others' arrays, in blocks of theirs, holds nothing here.
        """
        return Held(*(max(0, mine - theirs) for mine, theirs in zip(self, others, strict=True)))

    def __str__(self) -> str:
        names = ("CuPy's pool", "PyTorch's allocator", "memory of peers")
        return ", ".join(f"{name} {size(part)}" for name, part in zip(names, self, strict=True) if part)


NOTHING = Held()


def held(device: str) -> Held:
    """The most that has been held since :func:`reset_pools` (PyTorch's peak, CuPy's total); nothing on a CPU."""
    if device == "cpu":
        return NOTHING
    import torch

    return Held(pools.total_bytes(), int(torch.cuda.max_memory_reserved()), _of_peers())


def pool_bytes(device: str) -> int:
    """All of :func:`held` together."""
    return held(device).total


def held_by_others(graph: Any, device: str, trains: bool = True, captures: bool = False) -> Held:
    """What is held before a run begins and is none of the run's: all but the topology of ``graph``, which it uses.

    cuBLAS's workspaces are the process's, as its kernels are. Where the run ``trains`` they are taken before, those of
    the stream on which it ``captures``, too: the first run of a process would count them as its own, and have less for
    its cache than the same run has afterwards.
    """
    if trains:
        take_workspaces()
    if trains and captures and device == "cuda":
        import torch

        with streams.borrowed_torch_stream() as stream, torch.cuda.stream(stream):  # a capture has it next
            take_workspaces()
            stream.synchronize()
    arrays = (graph.indptr, graph.indices, graph.edge_weight)
    own = sum(int(array.nbytes) for array in arrays if array is not None and is_cuda_array(array))
    return held(device).less(Held(cupy=own))


def apart(device: str) -> int:
    """Bytes in use on the GPU that nobody of :func:`held` has: CUDA context, kernels, NCCL; and other processes'."""
    if device == "cpu":
        return 0
    import cupy
    import torch

    free, total = cupy.cuda.runtime.memGetInfo()
    return max(0, int(total - free) - pools.total_bytes() - int(torch.cuda.memory_reserved()) - _of_peers())


def give_back() -> None:
    """Give unused blocks of CuPy's pools back.

    What is made next has blocks of its own then. A block can be given back as a whole only: a cache that lay in a part
    of a large one would keep all of it for as long as the cache stays.
    """
    gc.collect()
    wait_for_device()
    pools.free_all_blocks()


@contextlib.contextmanager
def rounding(most: int | None = None, given_back: pools.GivenBack | None = None) -> Iterator[None]:
    """Inside, CuPy and PyTorch's allocator ask for few sizes, 16 an octave, on all threads.

    Arrays of one mini-batch are a little larger than those of the last one: without that none fits a block that is
    free, and the pools hold half as much again as they need.

    Args:
        most, given_back: of CuPy's pools, as :func:`gnnsample_lab.device.pools.rounding` has them.
    """
    with pools.rounding(most, given_back), torch_rounding():
        yield


@contextlib.contextmanager
def torch_rounding() -> Iterator[None]:
    """Inside, PyTorch's allocator rounds to 16 sizes an octave, and its segments grow where the driver can do that.

    What it does not use of a segment that cannot grow is lost to larger tensors: three streams took half as much again
    as a trial of their steps, and were refused memory. What the caller has told it stays as it is. Blocks that it holds
    are of the sizes that they had.
    """
    tell, told = _allocator_settings()
    wanted = {"roundup_power2_divisions": (str(pools.SIZES_AN_OCTAVE), "1")}  # inside, and its default
    if runtime.has_virtual_memory():
        wanted["expandable_segments"] = ("True", "False")
    wanted = {name: values for name, values in wanted.items() if name not in told}
    if not wanted:
        yield
        return
    inside, default = (
        ",".join(filter(None, (told, *(f"{name}:{values[at]}" for name, values in wanted.items()))))
        for at in (0, 1)
    )
    tell(inside)
    try:
        yield
    finally:
        tell(default)  # what is left out stays as it was
        tell(told)


def _allocator_settings() -> tuple[Callable[[str], None], str]:
    """How PyTorch's allocator is told its settings, and what it has been told: where it does not say, at its start."""
    import torch

    core = torch._C
    tell = (
        getattr(core, "_accelerator_setAllocatorSettings", None) or torch.cuda.memory._set_allocator_settings
    )
    if told := getattr(core, "_accelerator_getAllocatorSettings", None):
        return tell, str(told())
    variables = (os.environ.get(name) for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
    return tell, next(filter(None, variables), "")


def take_workspaces() -> None:
    """Have cuBLAS take its workspaces for PyTorch's current stream, this thread's and that of backward passes, now.

    They are in use until the process ends (32 MiB each, an H100). Taken amid a step, they lie in larger blocks of
    PyTorch's allocator, whose rest can then never be given back.
    """
    import torch

    with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cuda", enabled=False):
        one = torch.ones(1, 1, device="cuda", requires_grad=True)
        torch.addmm(one[0], one.mm(one), one).sum().backward()


def reset_pools() -> None:
    """Give unused device memory back and start the count of :func:`held` anew."""
    import torch

    give_back()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def _of_peers() -> int:
    peer_memory = sys.modules.get("gnnsample_lab.distributed.peer_memory")  # else there is no such memory
    return 0 if peer_memory is None else int(peer_memory.open_bytes())
