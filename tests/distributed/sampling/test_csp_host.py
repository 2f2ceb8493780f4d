"""What collective sampling on GPUs decides on the host: sizes of messages, capacities, and how ranks grow together."""

from __future__ import annotations

import ctypes
import re
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnsample_lab.device.kernels import PACKAGE_ROOT
from gnnsample_lab.distributed.ranks.run import Ranks
from gnnsample_lab.distributed.sampling.capacities import WARM_UP, Capacities
from gnnsample_lab.distributed.sampling.gpu import csp_kernels as packing
from gnnsample_lab.distributed.sampling.gpu.csp import CspEngine, _Call
from gnnsample_lab.distributed.sampling.gpu.csp_core import Moved
from gnnsample_lab.distributed.sampling.gpu.csp_fixed import FixedCore, rows_of
from gnnsample_lab.distributed.sampling.gpu.own import ROWS
from gnnsample_lab.distributed.sampling.traffic import Traffic
from gnnsample_lab.sampling.neighbors.plan import PLAN, STATUS_OVERFLOW

STRUCTS = {
    "Route": packing.ROUTE, "Tasks": packing.TASKS, "Ragged": packing.RAGGED, "Replies": packing.REPLIES,
    "Asked": packing.ASKED, "Sums": packing.SUMS,
}  # fmt: skip


def test_packed_arguments_are_as_long_as_the_kernels_structures() -> None:
    folder = PACKAGE_ROOT / packing.FOLDER
    sources = "".join(path.read_text(encoding="utf-8") for path in folder.glob("csp*.cu"))
    declared = {
        name: int(size) for name, size in re.findall(r"static_assert\(sizeof\((\w+)\) == (\d+)", sources)
    }
    assert {name: packing.Argument(*struct).size for name, struct in STRUCTS.items()} == declared
    assert f"#define MAX_PEERS {packing.MAX_PEERS}" in (folder / "csp.cuh").read_text(encoding="utf-8")
    own = (folder / "own.cu").read_text(encoding="utf-8")
    assert f"static_assert(sizeof(Rows) == {ROWS.itemsize}" in own
    # A launch takes 4 KiB of arguments on all architectures; beside these three no kernel takes more than a hop.
    tasks, ragged, hop = declared["Tasks"], declared["Ragged"], 8
    assert PLAN.itemsize + tasks + ragged + hop <= 4096


def test_an_argument_keeps_fields_and_tables_apart() -> None:
    argument = packing.Argument("2Qi", 2)
    packed = argument.pack((1, 2, -3), [7, 8], [9])
    raw = np.frombuffer(packed.tobytes(), np.uint8)
    assert raw[:16].view(np.uint64).tolist() == [1, 2]
    assert raw[16:20].view(np.int32).tolist() == [-3]
    tables = raw[20:].copy().view(np.uint64).reshape(2, packing.MAX_PEERS)
    assert tables[0, :3].tolist() == [7, 8, 0]
    assert tables[1, :2].tolist() == [9, 0]


def test_a_launch_reads_its_arguments_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[Any] = []

    def launch(*args: Any) -> None:
        pointers = (ctypes.c_void_p * 3).from_address(args[9])
        number = ctypes.c_int32.from_address(pointers[1] or 0).value
        launched.append(
            (args[:9], args[10], ctypes.string_at(pointers[0] or 0, 16), number, pointers[2] is not None)
        )

    driver = SimpleNamespace(launchKernel=launch)
    for name, module in (
        ("cupy_backends", SimpleNamespace(__path__=[])), ("cupy_backends.cuda", SimpleNamespace(__path__=[])),
        ("cupy_backends.cuda.api", SimpleNamespace(driver=driver)), ("cupy_backends.cuda.api.driver", driver),
    ):  # fmt: skip
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    argument, hops = packing.Argument("2Q", 1), np.arange(5, dtype=np.int32)
    call = packing.Launch(SimpleNamespace(ptr=77), 256, argument.memory, hops[3:4], np.zeros(1, np.uint64))
    argument.pack((1, 2))
    call(9, 4)
    argument.pack((5, 6))
    hops[3] = 30
    call(9, 4, 2)
    shapes = [(77, 4, rows, 1, 256, 1, 1, 0, 9) for rows in (1, 2)]
    words = [np.array(pair, np.uint64).tobytes() for pair in ((1, 2), (5, 6))]
    assert launched == [(shapes[0], 0, words[0], 3, True), (shapes[1], 0, words[1], 30, True)]


def test_pieces_of_a_reply_begin_at_multiples_of_sixteen() -> None:
    assert packing.reply_bytes(0, 10, 4, False) == 0
    assert packing.reply_bytes(1, 1, 4, False) == 16 + 16
    assert packing.reply_bytes(5, 10, 4, False) == 32 + 208
    assert packing.reply_bytes(5, 10, 8, True) == 32 + 608
    for rows in range(1, 40):
        for stride in (1, 3, 10):
            found = packing.reply_bytes(rows, stride, 8, True)
            assert found % 16 == 0
            assert 0 <= found - rows * (4 + 12 * stride) < 32


@pytest.mark.parametrize(("stride", "kmax"), [(0, 0), (1, 8), (8, 8), (9, 16), (17, 32), (32, 32), (33, 0)])
def test_lanes_draw_narrow_rows(stride: int, kmax: int) -> None:
    assert packing.kmax_of(stride) == kmax


def test_room_for_buckets_never_shrinks_from_hop_to_hop() -> None:
    ids = np.array([[[4, 8], [2, 2]], [[2, 16], [8, 1]]])
    asked, served = rows_of(Capacities(ids, ids), 0)
    assert asked.tolist() == [[4, 8], [4, 16]]
    assert served.tolist() == [[4, 2], [4, 8]]


def stub(index: int, ranks: int) -> Any:
    """What :class:`FixedCore` reads of a core to agree on capacities."""
    spec = SimpleNamespace(num_hops=2, weighted=False)
    return SimpleNamespace(me=index, parts=ranks, strides=(3, 2), spec=spec, id_bytes=4)


def agree(rank: Any, rows: list[list[list[int]]], later: list[list[int]], limit: int) -> Any:
    """Warm up with ``rows[rank]``, then grow after a mini-batch with ``later[rank]`` rows in each hop."""
    import torch
    import torch.distributed as dist

    calls = []

    def largest(values: np.ndarray) -> np.ndarray:
        calls.append(values.size)
        tensor = torch.from_numpy(np.array(values, dtype=np.int64))
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=rank.group)
        return tensor.numpy()

    fixed = FixedCore(stub(rank.index, rank.world_size), limit, largest)
    try:
        for i in range(WARM_UP):
            assert fixed.capacities is None
            fixed.measure(np.array(rows[rank.index]) - (i != 5))  # one mini-batch was the largest
        first = fixed.capacities
        assert first is not None
        fixed._graph = fixed._layout = "captured"
        fixed.measure(np.array([later[rank.index]] * 2))
        grown = fixed.capacities
    except RuntimeError as error:
        return str(error)
    assert grown is not None and fixed._graph is None and fixed._layout is None
    return first.ids.tolist(), first.picks.tolist(), grown.ids.tolist(), len(calls)


def test_ranks_agree_on_capacities_and_grow_together(four_ranks: Ranks) -> None:
    rows = [[[1, 10, 100], [20, 11, 50]], [[5, 6, 7], [50, 60, 70]], [[0, 1, 2], [3, 4, 5]]]
    later = [[1, 1, 1], [1, 1, 1], [1, 500, 1]]  # only the last rank asks for more
    results = four_ranks.run(agree, rows, later, 10**6, world=3)
    assert results[0] == results[1] == results[2]
    ids, picks, grown, collectives = results[0]
    assert collectives == 2
    assert ids[0] == [[2, 16, 128], [8, 8, 16], [1, 2, 4]]
    assert ids[1] == [[32, 16, 128], [64, 128, 128], [4, 8, 8]]
    assert picks[0] == [[3 * n for n in each] for each in ids[0]]
    assert picks[1] == [[2 * n for n in each] for each in ids[1]]
    assert grown[0][2] == [1, 1024, 4]
    assert grown[0][:2] == ids[0][:2] and grown[1][:2] == ids[1][:2]
    assert grown[1][2] == [4, 1024, 8]


def test_a_graph_is_not_replayed_once_its_buffers_may_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mini-batch that overflows is sampled with exact sizes; then buffers may exceed their bound, which stays."""
    core = stub(0, 1)
    core.ws = SimpleNamespace(shape=SimpleNamespace(seed_cap=8))
    core.forced, core.stage, core.await_totals = [0], lambda *_: None, lambda _: STATUS_OVERFLOW
    fixed = FixedCore(core, 10**4, lambda values: values)
    for _ in range(WARM_UP):
        fixed.measure(np.array([[3], [4]]))
    laid_out: list[Any] = []

    def lay_out(ws: Any) -> None:
        laid_out.append(ws)
        fixed._layout = rows_of(fixed.capacities, 0)  # type: ignore[arg-type]

    monkeypatch.setattr(fixed, "_lay_out", lay_out)
    seeds = np.arange(3)
    ws = fixed.prepare(seeds, 0)
    fixed._graph = "captured"
    assert fixed.prepare(seeds, 1) is ws and len(laid_out) == 1
    assert fixed.result(ws, seeds, 1, None) is None
    with pytest.raises(RuntimeError, match="more than scratch_bytes=10,000"):
        fixed.measure(np.array([[3], [4000]]))
    assert fixed._graph is None
    fixed.prepare(seeds, 2)
    assert len(laid_out) == 2


def test_messages_that_do_not_fit_are_an_error_on_all_ranks(four_ranks: Ranks) -> None:
    rows = [[[1, 10], [20, 11]], [[5, 6], [50, 6000]]]
    results = four_ranks.run(agree, rows, [[1, 1], [1, 1]], 20_000, world=2)
    assert results[0] == results[1]
    assert "csp-fixed" in results[0] and "scratch_bytes=20,000" in results[0]


def test_messages_that_do_not_fit_are_refused_again() -> None:
    fixed = FixedCore(stub(0, 2), 1000, lambda values: values)
    for i in range(WARM_UP + 2):
        if i + 1 < WARM_UP:
            fixed.measure(np.array([[1, 500], [1, 500]]))
            continue
        with pytest.raises(RuntimeError, match="scratch_bytes=1,000"):
            fixed.measure(np.array([[1, 1], [1, 1]]))
    assert fixed.capacities is None


def test_all_neighbours_of_long_lists_have_no_fixed_size() -> None:
    core = stub(0, 2)
    core.strides = (3, 0)
    with pytest.raises(ValueError, match="fanouts must not take all neighbours"):
        FixedCore(core, 10**6, lambda values: values)


def test_a_replay_is_one_start() -> None:
    """However many collectives its graph has; whoever brings collectives in one order sees that start."""
    seen: list[str] = []
    fixed = FixedCore(stub(0, 2), 10**6, lambda values: values)
    fixed._graph = SimpleNamespace(launch=lambda: seen.append("replayed"))

    def start(launch: Any) -> None:
        seen.append("its turn")
        launch()

    nothing: Any = None
    fixed.replay(nothing, nothing, nothing, start)
    assert seen == ["its turn", "replayed"]


# ---- traffic ----------------------------------------------------------------------------------------------------


def counting_engine() -> CspEngine:
    engine = CspEngine.__new__(CspEngine)
    engine.exchange = SimpleNamespace(members=np.arange(2))  # type: ignore[assignment]
    engine.spec = SimpleNamespace(weighted=False, num_hops=2)  # type: ignore[assignment]
    engine.core = SimpleNamespace(parts=2, me=0, id_bytes=4, wide_amounts=False, strides=(3, 2))  # type: ignore[assignment]
    engine.method, engine.fixed, engine._calls = "csp", None, []
    return engine


def test_calls_that_nobody_asks_about_are_counted_together() -> None:
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(5):
        batches.append(Moved(2, 2))
        for name in ("asked", "served", "taken", "given"):
            getattr(batches[-1], name)[:] = rng.integers(1, 1000, (2, 2))
    each = [Traffic(0, np.zeros(2)) for _ in batches]
    together = [Traffic(0, np.zeros(2)) for _ in batches]
    for traffics, asks in ((each, True), (together, False)):
        engine = counting_engine()
        for moved, traffic in zip(batches, traffics, strict=True):
            engine._calls.append(_Call(traffic, [moved]))
            if asks:
                engine.settle()
        engine.settle()
        engine.settle()  # nothing is counted twice
    assert all(t.volume > 0 for t in each)
    assert together[-1].by_kind == each[-1].by_kind  # the last call is one that somebody may ask about
    assert [t.is_empty for t in together] == [False, True, True, True, False]

    def total(traffics: list[Traffic]) -> tuple[Any, ...]:
        t = sum(traffics[1:], traffics[0])
        return t.by_kind, t.by_peer.tolist(), t.requests.tolist(), t.collectives, t.ideal, t.ideal_remote

    assert total(each) == total(together)
