"""The iterator of a training loop."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from gnnsample_lab import NeighborSampler, PinSAGESampler, rmat

TRAIN = np.arange(3, 103)


@pytest.fixture
def sampler(graph):
    return NeighborSampler(graph, [3, 2], device="cpu", seed=17)


def contents(batches) -> list[tuple[int, str]]:
    return [(b.batch_id, b.canonical().sha256()) for b in batches]


def sampling_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("sampler")]


@pytest.mark.parametrize(("size", "drop_last", "lengths"), [
    (30, False, [30, 30, 30, 10]),
    (30, True, [30, 30, 30]),
    (25, False, [25] * 4),
    (25, True, [25] * 4),
    (100, False, [100]),
    (1000, False, [100]),
    (1000, True, []),
    (1, False, [1] * 100),
])  # fmt: skip
def test_every_seed_once_in_batches_of_the_given_size(sampler, size, drop_last, lengths):
    epoch = sampler.epoch(TRAIN, size, drop_last=drop_last)
    batches = list(epoch)
    assert len(epoch) == len(batches) == len(lengths)
    assert [len(b.seed_inverse) for b in batches] == lengths
    seen = np.concatenate([b.seeds for b in batches] or [[]])
    assert len(np.unique(seen)) == sum(lengths)
    assert set(seen.tolist()) <= set(TRAIN.tolist())


@pytest.mark.parametrize("drop_last", [False, True])
def test_batch_ids_are_unique_over_epochs(sampler, drop_last):
    ids = [b.batch_id for e in range(5) for b in sampler.epoch(TRAIN, 30, epoch=e, drop_last=drop_last)]
    assert ids == list(range(len(ids)))
    assert len(ids) == (15 if drop_last else 20)


def test_an_epoch_is_its_batches_sampled_one_by_one(sampler):
    for shuffle in (False, True):
        for batch in sampler.epoch(TRAIN, 30, epoch=2, shuffle=shuffle):
            alone = sampler.sample(batch.seeds[batch.seed_inverse], batch.batch_id)
            assert batch.canonical() == alone.canonical()


def test_without_shuffle_seeds_keep_their_order(sampler):
    batches = list(sampler.epoch(TRAIN[::-1], 30, shuffle=False))
    assert np.concatenate([b.seeds for b in batches]).tolist() == TRAIN[::-1].tolist()


def test_duplicate_seeds_stay_in_their_batches(sampler):
    batches = list(sampler.epoch([5, 5, 6, 5], 2, shuffle=False))
    assert [b.seeds[b.seed_inverse].tolist() for b in batches] == [[5, 5], [6, 5]]


def order(sampler, **how) -> list[int]:
    return [v for b in sampler.epoch(TRAIN, 30, **how) for v in b.seeds.tolist()]


def test_the_shuffle_is_a_function_of_seed_and_epoch(graph, sampler):
    first = order(sampler, epoch=0)
    assert first != TRAIN.tolist()
    assert sorted(first) == TRAIN.tolist()
    assert order(sampler, epoch=0) == first
    assert order(NeighborSampler(graph, [1], device="cpu", seed=17), epoch=0) == first
    assert order(sampler, epoch=1) != first
    assert order(NeighborSampler(graph, [3, 2], device="cpu", seed=18), epoch=0) != first


def test_seeds_of_any_64_bits_shuffle(graph):
    assert sorted(order(NeighborSampler(graph, [1], device="cpu", seed=2**64 - 1))) == TRAIN.tolist()


def test_iterating_again_gives_the_same(sampler):
    epoch = sampler.epoch(TRAIN, 30)
    assert contents(epoch) == contents(epoch)


def test_two_epochs_may_be_iterated_side_by_side(sampler):
    apart = contents(sampler.epoch(TRAIN, 30, epoch=0)), contents(sampler.epoch(TRAIN, 30, epoch=1))
    pairs = list(zip(sampler.epoch(TRAIN, 30, epoch=0), sampler.epoch(TRAIN, 30, epoch=1), strict=True))
    assert contents(a for a, _ in pairs) == apart[0]
    assert contents(b for _, b in pairs) == apart[1]


@pytest.mark.parametrize("prefetch", [1, 2, 3, 4, 5, 50])
def test_prefetch_changes_nothing(sampler, prefetch):
    assert contents(sampler.epoch(TRAIN, 30, prefetch=prefetch)) == contents(sampler.epoch(TRAIN, 30))


def test_no_more_is_sampled_ahead_than_asked_for(sampler, monkeypatch):
    asked = []
    sample = sampler.sample
    monkeypatch.setattr(sampler, "sample", lambda s, i: (asked.append(i), sample(s, i))[1])
    iterator = iter(sampler.epoch(TRAIN, 10, prefetch=3))
    next(iterator)
    iterator.close()
    assert asked == list(range(len(asked)))
    assert 1 <= len(asked) <= 3


@pytest.mark.parametrize("progress", [False, True])
@pytest.mark.parametrize("taken", [0, 1, 3])
def test_leaving_the_loop_early_leaves_no_thread(sampler, taken, progress):
    for number, _ in enumerate(sampler.epoch(TRAIN, 10, prefetch=5, progress=progress)):
        if number == taken:
            break
    for thread in sampling_threads():
        thread.join(30)
    assert not sampling_threads()
    assert sampler.sample([1]).num_nodes >= 1


def test_an_exception_in_the_loop_leaves_no_thread(sampler):
    with pytest.raises(KeyError):
        for _ in sampler.epoch(TRAIN, 10, prefetch=5):
            raise KeyError
    for thread in sampling_threads():
        thread.join(30)
    assert not sampling_threads()


def test_an_iterator_that_was_never_started_costs_nothing(sampler):
    iter(sampler.epoch(TRAIN, 10))
    assert not sampling_threads()


def test_an_error_while_sampling_ahead_reaches_the_loop(sampler, monkeypatch):
    sample = sampler.sample

    def fails_at_two(seeds, batch_id):
        if batch_id == 2:
            raise MemoryError("batch 2")
        return sample(seeds, batch_id)

    monkeypatch.setattr(sampler, "sample", fails_at_two)
    seen = []
    with pytest.raises(MemoryError, match="batch 2"):
        seen.extend(b.batch_id for b in sampler.epoch(TRAIN, 10, prefetch=4))
    for thread in sampling_threads():
        thread.join(30)
    assert not sampling_threads()


def test_the_progress_bar_counts_batches(sampler, capsys):
    assert contents(sampler.epoch(TRAIN, 30, epoch=3, progress=True)) == contents(
        sampler.epoch(TRAIN, 30, epoch=3)
    )
    shown = capsys.readouterr().err
    assert "epoch 3" in shown and "4/4" in shown
    list(sampler.epoch(TRAIN, 30))
    assert capsys.readouterr().err == ""


def test_traces_come_with_the_batches(graph):
    sampler = NeighborSampler(graph, [3, 2], device="cpu", trace=True, strategy="persistent")
    assert [b.trace.batch_id for b in sampler.epoch(TRAIN, 50, epoch=4)] == [8, 9]


def test_torch_seeds(sampler):
    torch = pytest.importorskip("torch")
    assert contents(sampler.epoch(torch.from_numpy(TRAIN.copy()), 30)) == contents(sampler.epoch(TRAIN, 30))


def test_an_epoch_runs_while_its_consumer_holds_the_lock() -> None:
    """An explorer computes under the lock: a thread that samples ahead would wait for it for ever."""
    import threading

    from gnnsample_lab import Graph, NeighborSampler
    from gnnsample_lab.device import runtime

    graph = Graph.from_edges(range(1, 30), range(29))
    sampler = NeighborSampler(graph, [2], device="cpu")
    free = [batch.canonical() for batch in sampler.epoch(range(30), batch_size=4)]
    held: list[object] = []

    def consume() -> None:
        with runtime.lock:
            held.extend(batch.canonical() for batch in sampler.epoch(range(30), batch_size=4))

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the epoch waits for its own consumer"
    assert held == free


def _ends(work) -> None:
    """Run ``work`` in a thread; the test fails where it hangs."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(120)
    assert not thread.is_alive(), "the consumer and the thread that samples ahead wait for each other"
    if failed:
        raise failed[0]


def test_an_epoch_begun_outside_the_lock_may_be_advanced_inside(sampler) -> None:
    from gnnsample_lab.device import runtime

    free, held = contents(sampler.epoch(TRAIN, 5)), []

    def consume() -> None:
        batches = iter(sampler.epoch(TRAIN, 5))
        held.append(next(batches))
        with runtime.lock:
            held.extend(batches)

    _ends(consume)
    assert contents(held) == free


def test_an_application_may_look_at_mini_batches_while_it_prepares(graph, sampler) -> None:
    import gnnsample_lab as lab

    class Prepared(lab.SamplingApp):
        def __init__(self, batches) -> None:
            self.batches, self.seen = batches, 0

        def prepare(self, graph) -> None:
            self.seen = sum(batch.num_edges for batch in self.batches)

        def next(self, s, transits, src_edges, step, rng):
            return 0 if self.seen > 0 else -1

        def steps(self) -> int:
            return 1

        def sample_size(self, step: int) -> int:
            return 1

    def consume() -> None:
        batches = iter(sampler.epoch(TRAIN, 5))
        next(batches)
        app = Prepared(batches)
        lab.run_app(graph, app, [1], device="cpu")
        assert app.seen > 0

    _ends(consume)


def test_seeds_in_order_are_the_iterators_own():
    graph = rmat(64, 4)
    seeds = np.arange(40)
    epoch = NeighborSampler(graph, [3], device="cpu").epoch(seeds, 10, shuffle=False)
    before = [batch.canonical().sha256() for batch in epoch]
    seeds[:] = seeds[::-1].copy()
    assert [batch.canonical().sha256() for batch in epoch] == before


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint16, np.uint64])
def test_seeds_of_the_host_go_to_the_gpu_once(graph, dtype, monkeypatch):
    import cupy

    from gnnsample_lab.minibatch import epoch as module

    alone, given = NeighborSampler(graph, [3, 2], device="cpu", seed=17), TRAIN.astype(dtype)
    sampler = NeighborSampler(graph, [3, 2], device="cuda", seed=17)
    expected = contents(alone.epoch(TRAIN, 30, epoch=1))
    epoch = sampler.epoch(given, 30, epoch=1)
    assert contents(epoch) == contents(epoch) == expected
    first, second = epoch.placed_seeds(0), epoch.placed_seeds(1)
    assert isinstance(first, cupy.ndarray) and second.data.ptr == first.data.ptr + first.nbytes
    assert first.dtype == (np.int32 if dtype == np.int32 else np.int64)
    np.testing.assert_array_equal(first.get(), epoch.batch_seeds(0))
    on_gpu = sampler.epoch(cupy.asarray(TRAIN), 30, epoch=1)
    assert on_gpu.placed_seeds(1).data.ptr == on_gpu.batch_seeds(1).data.ptr

    monkeypatch.setattr(module, "_MOST_PLACED", 99)  # many seeds stay where they are
    epoch = sampler.epoch(given, 30, epoch=1)
    assert isinstance(epoch.placed_seeds(0), np.ndarray) and contents(epoch) == expected


@pytest.mark.gpu
def test_an_epoch_is_sampled_where_its_seeds_find_no_room(graph, monkeypatch):
    import cupy

    def full(*_: object) -> None:
        raise cupy.cuda.memory.OutOfMemoryError(1, 1)

    sampler = NeighborSampler(graph, [3, 2], device="cuda", seed=17)
    epoch = sampler.epoch(TRAIN, 30)
    with monkeypatch.context() as patched:
        patched.setattr(cupy, "asarray", full)
        assert isinstance(epoch.placed_seeds(0), np.ndarray)
    assert len(list(epoch)) == 4


@pytest.mark.gpu
def test_seeds_of_walks_stay_on_the_host(graph):
    sampler = PinSAGESampler(graph, num_layers=2, device="cuda")
    assert isinstance(sampler.epoch(TRAIN, 30).placed_seeds(0), np.ndarray)


@pytest.mark.parametrize("on_gpu", [False, pytest.param(True, marks=pytest.mark.gpu)])
def test_seeds_may_change_once_an_epoch_is_made(graph, on_gpu):
    given = np.arange(8)
    if on_gpu:
        import cupy

        given = cupy.asarray(given)
    sampler = NeighborSampler(
        graph.to("cuda" if on_gpu else "cpu"), [3, 2], device="cuda" if on_gpu else "cpu"
    )
    epoch = sampler.epoch(given, 4, shuffle=False)
    given += 50
    for _ in range(2):
        assert [batch.to_cpu().seeds.tolist() for batch in epoch] == [[0, 1, 2, 3], [4, 5, 6, 7]]
