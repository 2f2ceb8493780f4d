"""Threads and forked processes: what would end or hang a process does neither."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from gnnsample_lab.device import jit, locks
from gnnsample_lab.device.jit import njit, prange
from gnnsample_lab.device.locks import Lock

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_S = 240
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

SAMPLER = """
import multiprocessing, os, sys, threading
import numpy as np
import gnnsample_lab as lab
from gnnsample_lab.device import locks, runtime
graph = lab.Graph.from_edges(np.arange(1, 400) % 399, np.arange(399), feat=np.ones((399, 4), np.float32))
sampler = lab.NeighborSampler(graph, [2, 2], device="cpu", seed=3)
def drawn(i):
    return sampler.sample([i, i + 5], i).canonical().sha256()
def forked(work, *arguments):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        try:
            return pool.apply(work, arguments)
        except RuntimeError as error:
            return "spawn" if "'spawn'" in str(error) else repr(error)
"""


def run(code: str, folder: Path, **variables: str) -> str:
    """What a script prints; the test fails where it is ended by a signal or takes longer than the limit."""
    script = folder / "script.py"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **variables}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    return done.stdout.strip()


# -- parallel regions -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["workqueue", pytest.param("default", marks=pytest.mark.exhaustive)])
def test_a_training_loop_outlives_every_threading_layer(tmp_path: Path, layer: str) -> None:
    """The epoch's thread samples while the loop extracts, by two samplers, and an application walks beside them."""
    code = """
import threading
import numpy as np, torch
import gnnsample_lab as lab
rng = np.random.default_rng(0)
n = 8_000
graph = lab.Graph.from_edges(rng.integers(n, size=20 * n), rng.integers(n, size=20 * n), n)
feat = rng.standard_normal((n, 64), dtype=np.float32)
cache = lab.FeatureCache(feat, np.arange(n), ratio=0.3, device="cpu")
sampler = lab.NeighborSampler(graph, [8, 8], device="cpu", seed=1)
model = lab.make_model("sage", 64, 16, 4, num_layers=2)
optimizer = torch.optim.Adam(model.parameters())
walking = threading.Thread(
    target=lambda: [lab.run_app(graph, lab.apps.DeepWalk(20), np.arange(4000), device="cpu") for _ in range(10)]
)
walking.start()
wrong = steps = 0
for epoch in range(2):
    for batch in sampler.epoch(np.arange(4000), 200, epoch=epoch, prefetch=4):
        x, _ = cache.extract(batch.node_ids)
        wrong += not np.array_equal(np.asarray(x), feat[batch.node_ids])
        loss = model(batch.blocks, torch.from_numpy(np.asarray(x))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
walking.join()
alone = lab.NeighborSampler(graph, [8, 8], device="cpu", seed=1).sample(batch.seeds[batch.seed_inverse], batch.batch_id)
import numba
print(steps, wrong, alone.canonical() == batch.canonical(), numba.threading_layer())
"""
    found = run(code, tmp_path, **({} if layer == "default" else {"NUMBA_THREADING_LAYER": layer}))
    assert found.startswith("40 0 True ")
    assert layer == "default" or found.endswith(layer)


def test_regions_take_turns_where_the_layer_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = []

    class Compiled:
        @staticmethod
        def py_func(x: int) -> None: ...

        def __call__(self, x: int) -> None:
            inside.append(jit._parallel_region.is_held())

    monkeypatch.setattr(jit, "start_threads", lambda: "workqueue")
    jit._taking_turns(Compiled())(1)
    monkeypatch.setattr(jit, "start_threads", lambda: "omp")
    jit._taking_turns(Compiled())(1)
    assert inside == [True, False]


def test_a_parallel_function_is_none_of_compiled_code() -> None:
    @njit(parallel=True)
    def inner(out):
        for i in prange(out.size):
            out[i] = i

    @njit
    def outer(out):
        inner(out)

    out = np.zeros(5, np.int64)
    inner(out)
    assert out.tolist() == [0, 1, 2, 3, 4] and inner.__name__ == "inner"
    with pytest.raises(Exception, match="inner"):
        outer(out)


# -- locks ------------------------------------------------------------------------------------------------------


def test_a_lock_is_reentrant_and_keeps_others_out() -> None:
    lock, taken = Lock(), []
    with lock, lock:
        assert lock.is_held()
        other = threading.Thread(target=lambda: taken.append((lock.acquire(blocking=False), lock.is_held())))
        other.start()
        other.join()
    assert taken == [(False, False)] and not lock.is_held()


def test_interrupts_never_leave_a_with_holding_a_lock(tmp_path: Path) -> None:
    code = """
import _thread, signal, sys, threading, time
from gnnsample_lab.device.locks import Lock
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
lock, go, interrupts, left = Lock(), threading.Event(), 0, 0
def pester():
    go.wait()
    while interrupts < 100:
        _thread.interrupt_main()
        time.sleep(0.0005)
thread = threading.Thread(target=pester, daemon=True)
thread.start()
while interrupts < 100:
    try:
        go.set()
        while True:
            with lock, lock:
                pass
    except KeyboardInterrupt:
        pass
    try:
        interrupts += 1
        left += lock.is_held()
        while lock.is_held():
            lock.release()
    except KeyboardInterrupt:
        pass
while thread.is_alive():
    try:
        thread.join()
    except KeyboardInterrupt:
        pass
print(left)
"""
    assert run(code, tmp_path) == "0"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda lock: pickle.loads(pickle.dumps(lock))])
def test_a_copy_of_a_held_lock_is_free(copied) -> None:
    lock = Lock()
    with lock:
        other = copied(lock)
        assert other is not lock and not other.is_held()


# -- fork -------------------------------------------------------------------------------------------------------


@needs_fork
@pytest.mark.slow
def test_a_fork_after_use_is_refused(tmp_path: Path) -> None:
    code = (
        SAMPLER
        + "def extract(i):\n    return cache.extract(np.arange(i))\n"
        + "def walk(i):\n    return lab.run_app(graph, lab.apps.DeepWalk(i), [0], device='cpu').num_steps\n"
        + "cache = lab.FeatureCache(graph.feat, np.arange(399), ratio=0.5, device='cpu')\n"
        + "drawn(0)\n"
        + "print(forked(drawn, 1), forked(extract, 1), forked(walk, 1), len(drawn(1)))\n"
    )
    assert run(code, tmp_path) == "spawn spawn spawn 64"


@needs_fork
@pytest.mark.slow
def test_a_fork_before_use_samples(tmp_path: Path) -> None:
    assert run(SAMPLER + "print(forked(drawn, 1) == drawn(1))", tmp_path) == "True"


@needs_fork
@pytest.mark.slow
def test_an_epoch_begun_before_a_fork_is_refused_in_the_child(tmp_path: Path) -> None:
    code = (
        SAMPLER
        + "epoch = iter(sampler.epoch(np.arange(100), 10))\n"
        + "next(epoch)\n"
        + "def advance():\n    return next(epoch).batch_id\n"
        + "print(forked(advance), next(epoch).batch_id)\n"
    )
    assert run(code, tmp_path) == "spawn 1"


@needs_fork
def test_a_lock_that_another_thread_held_at_the_fork_is_refused(tmp_path: Path) -> None:
    code = """
import os, threading
from gnnsample_lab.device.locks import Lock
held, free, own, begun, ended = Lock(), Lock(), Lock(), threading.Event(), threading.Event()
def hold():
    with held:
        begun.set()
        ended.wait()
threading.Thread(target=hold).start()
begun.wait()
with own:
    child = os.fork()
    if child == 0:
        with free, own:
            pass
        try:
            held.acquire()
        except RuntimeError as error:
            os._exit(7 if "'spawn'" in str(error) else 8)
        os._exit(9)
ended.set()
with held, own:
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(code, tmp_path) == "7"


@needs_fork
def test_the_gpu_is_refused_where_the_parent_used_it(tmp_path: Path) -> None:
    code = """
import os
from gnnsample_lab.device import locks
locks.check_process("cuda")
locks.cuda_is_in_use()
locks.check_process("cuda")
child = os.fork()
if child == 0:
    locks.check_process("cpu")
    try:
        locks.check_process("cuda")
    except RuntimeError as error:
        os._exit(7 if "'spawn'" in str(error) else 8)
    os._exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(code, tmp_path) == "7"


LOADER = """
import numpy as np, torch
import gnnsample_lab as lab

class Batches(torch.utils.data.Dataset):
    def __init__(self):
        graph = lab.Graph.from_edges(np.arange(1, 400) % 399, np.arange(399))
        self.sampler = lab.NeighborSampler(graph, [2, 2], device="cpu", seed=3)
    def __len__(self):
        return 3
    def __getitem__(self, i):
        return self.sampler.sample([i, i + 5], i).canonical().sha256()

if __name__ == "__main__":
    batches = Batches()
    expected = [batches[i] for i in range(3)]
    loader = torch.utils.data.DataLoader(
        batches, batch_size=None, num_workers=1, multiprocessing_context=CONTEXT
    )
    try:
        print(list(loader) == expected)
    except RuntimeError as error:
        print("'spawn'" in str(error))
"""


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_loaders_workers_sample_or_say_what_to_do(tmp_path: Path, context: str) -> None:
    pytest.importorskip("torch")
    assert run(LOADER.replace("CONTEXT", repr(context)), tmp_path) == "True"


@pytest.mark.gpu
@needs_fork
@pytest.mark.real_gpu
def test_a_fork_after_use_of_a_gpu_is_refused(tmp_path: Path) -> None:
    code = (
        SAMPLER.replace('device="cpu"', 'device="cuda"')
        + "drawn(0)\n"
        + "def make():\n    return lab.NeighborSampler(graph, [2], device='cuda').device\n"
        + "print(forked(drawn, 1), forked(make), len(drawn(1)))\n"
    )
    assert run(code, tmp_path) == "spawn spawn 64"


def test_nothing_is_lost_in_this_process() -> None:
    locks.check_process()
    locks.check_same_process(os.getpid(), "this process")
    with pytest.raises(RuntimeError, match="a thread did not survive the fork.*'spawn'"):
        locks.check_same_process(os.getpid() + 1, "a thread")
