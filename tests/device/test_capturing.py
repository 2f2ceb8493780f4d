"""What threads leave alone while one of them captures: a wait for the whole device, and the end of other memory."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import numpy as np
import pytest

from gnnsample_lab.device import pinned
from gnnsample_lab.device.capturing import wait_for_device, without_collection
from tests.capturing import capture_in_another_thread

SPIN = r"""
extern "C" __global__ void spin(long long ns) {
    long long begun, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begun < ns);
}
"""


def test_nothing_is_collected_during_a_capture() -> None:
    assert gc.isenabled()
    with pytest.raises(KeyError), without_collection():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.fixture
def busy() -> Any:
    """``busy()`` starts 300 ms of work on streams of all kinds, and returns what tells whether all of it is done."""
    import cupy
    import torch

    kernel = cupy.RawKernel(SPIN, "spin")
    kernel((1,), (1,), (cupy.int64(1000),))
    side = torch.cuda.Stream()
    streams = [cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(), cupy.cuda.Stream.from_external(side)]
    cupy.cuda.runtime.deviceSynchronize()

    def start() -> Any:
        for stream in streams:
            with stream:
                kernel((1,), (1,), (cupy.int64(300_000_000),))
        assert not any(stream.done for stream in streams)
        return lambda: all(stream.done for stream in streams)

    return start


@pytest.mark.gpu
@pytest.mark.real_gpu
def test_the_wait_is_for_all_streams_and_leaves_the_interpreter_to_others(busy: Any) -> None:
    done, over, turns = busy(), threading.Event(), 0

    def others() -> None:
        nonlocal turns
        while not over.is_set():
            time.sleep(0.001)
            turns += 1

    thread = threading.Thread(target=others)
    thread.start()
    wait_for_device()
    was_done = done()
    over.set()
    thread.join()
    assert was_done and turns > 20


@pytest.mark.gpu
@pytest.mark.real_gpu
def test_the_wait_ends_no_capture(busy: Any) -> None:
    with capture_in_another_thread():
        done = busy()
        wait_for_device()
        assert done()


@pytest.mark.gpu
@pytest.mark.real_gpu
def test_page_locked_memory_that_is_dropped_ends_no_capture(busy: Any) -> None:
    import cupy

    in_place, strided = np.arange(1 << 18), np.arange(1 << 18)[::2]
    assert pinned.locked(in_place) is in_place and pinned.locked(strided) is not strided
    made = pinned.empty(1 << 20)
    with capture_in_another_thread():
        done = busy()
        del in_place, strided, made
        assert done(), "the GPU may still have read there"
    cupy.cuda.runtime.deviceSynchronize()


@pytest.mark.gpu
@pytest.mark.real_gpu
def test_streams_of_our_own_are_none_that_torch_hands_out() -> None:
    import torch

    from gnnsample_lab.device import streams
    from gnnsample_lab.pipeline.executors import side_stream

    handed_out = {torch.cuda.Stream(priority=p).cuda_stream for p in (0, -1) for _ in range(40)}
    named = {name: side_stream(name).cuda_stream for name in ("sampling", "extraction")}
    with streams.borrowed_torch_stream() as first, streams.borrowed_torch_stream() as second:
        borrowed = {first.cuda_stream, second.cuda_stream}
        ours = borrowed | set(named.values())
    assert len(ours) == 4 and not ours & handed_out
    with streams.borrowed_torch_stream() as again:
        assert again.cuda_stream in borrowed
    assert side_stream("sampling").cuda_stream == named["sampling"]
    assert side_stream("sampling").priority < side_stream("extraction").priority
