"""The host in place of a GPU finds what a GPU lets pass, and computes what it should."""

from __future__ import annotations

import numpy as np
import pytest

from tests.host_gpu import cuda, memory
from tests.host_gpu.kernels import RawModule
from tests.host_gpu.memory import ndarray, on_device

_SOURCE = r"""
typedef unsigned int u32;
extern "C" __global__ void __launch_bounds__(64) add(const u32* from, u32 n, u32* to, u32 past) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n + past) to[i] = from[min(i, n - 1)] + 1;
}
extern "C" __global__ void sums(const u32* from, u32* to) {
    __shared__ u32 of_warps[4];
    u32 value = from[blockIdx.x * 128 + threadIdx.x];
    for (int apart = 16; apart; apart >>= 1) value += __shfl_xor_sync(0xFFFFFFFFu, value, apart);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) to[blockIdx.x] = of_warps[0] + of_warps[1] + of_warps[2] + of_warps[3];
    if (__syncthreads_count(value & 1) == 1000) __trap();
}
extern "C" __global__ void sizes(const u32* from, u32* to, int width) {
    to[threadIdx.x] = __shfl_sync(0xFFFFFFFFu, from[threadIdx.x], 1 + (int)threadIdx.x / 32, width);
}
extern "C" __global__ void refuse() {
    if (threadIdx.x == 3) __trap();
    __syncthreads();
}
"""


@pytest.fixture(scope="module")
def module() -> RawModule:
    return RawModule(code=_SOURCE)


def test_threads_warps_and_blocks(module: RawModule) -> None:
    values = np.random.default_rng(0).integers(0, 1000, 5 * 128).astype(np.uint32)
    found = ndarray(5, np.uint32)
    module.get_function("sums")((5,), (128,), (on_device(values), found))
    assert found.get().tolist() == values.reshape(5, 128).sum(axis=1).tolist()


@pytest.mark.parametrize("width", [2, 8, 32])
def test_a_shuffle_stays_in_its_group_of_lanes(module: RawModule, width: int) -> None:
    values, found = np.arange(64, dtype=np.uint32) * 3, ndarray(64, np.uint32)
    module.get_function("sizes")((1,), (64,), (on_device(values), found, np.int32(width)))
    lane = np.arange(64)
    assert found.get().tolist() == values[lane // width * width + (1 + lane // 32) % width].tolist()


@pytest.mark.parametrize("past", [0, 3])
def test_what_is_written_past_an_array_is_found(module: RawModule, past: int) -> None:
    memory.damage()
    given, found = on_device(np.arange(100, dtype=np.uint32)), ndarray(100, np.uint32)
    module.get_function("add")((2,), (64,), (given, np.uint32(100), found, np.uint32(past)))
    assert found.get().tolist() == list(range(1, 101))
    torn = memory.torn()
    assert len(torn) == (past > 0), torn
    assert not past or "from byte 400 of a block of 400 on" in torn[0]
    del given, found
    assert len(memory.damage()) == (past > 0)


def test_new_memory_holds_nonsense_and_freed_memory_too() -> None:
    made = ndarray(4, np.uint8)
    assert made.get().tolist() == [memory.NEW] * 4
    raw = made.data.mem._whole
    del made
    assert set(raw.tolist()) == {memory.FREED}


def test_a_launch_that_no_driver_checks_is_refused(module: RawModule) -> None:
    add, given = module.get_function("add"), on_device(np.zeros(4, np.uint32))
    with pytest.raises(TypeError, match=r"\[8, 4, 8, 4\] bytes \(got \[8, 8, 8, 4\]\)"):
        add((1,), (64,), (given, np.int64(4), given, np.uint32(0)))
    with pytest.raises(TypeError, match="takes arguments"):
        add((1,), (64,), (given, np.uint32(4), given))
    with pytest.raises(TypeError, match="array of the host"):
        add((1,), (64,), (np.zeros(4, np.uint32), np.uint32(4), given, np.uint32(0)))
    with pytest.raises(ValueError, match="no GPU launches"):
        add((1,), (2048,), (given, np.uint32(4), given, np.uint32(0)))


def test_a_trap_fails_the_launch(module: RawModule) -> None:
    with pytest.raises(cuda.CUDARuntimeError, match="trapped"):
        module.get_function("refuse")((2,), (64,), ())


def test_a_captured_graph_repeats_its_work(module: RawModule) -> None:
    add, values = module.get_function("add"), on_device(np.zeros(4, np.uint32))
    stream = cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        add((1,), (64,), (values, np.uint32(4), values, np.uint32(0)))
        graph = stream.end_capture()
    assert not values.get().any()
    for _ in range(3):
        graph.launch(stream)
    assert values.get().tolist() == [3, 3, 3, 3]


def test_arrays_of_host_and_device_do_not_mix() -> None:
    device, host = on_device(np.arange(6)), np.arange(6)
    for mix in (
        lambda: device + host,
        lambda: np.add(device, host),
        lambda: np.asarray(device),
        lambda: host < device,
    ):
        with pytest.raises(TypeError):
            mix()
    with pytest.raises(TypeError):
        device[:] = host
    view = device.reshape(2, 3)[1]
    view += 10
    assert device.get().tolist() == [0, 1, 2, 13, 14, 15]
    assert view.data.ptr == device.data.ptr + 24 and int(device[5]) == 15 and device[5].ndim == 0
