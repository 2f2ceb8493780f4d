"""Functions on four warm ranks: what they get, what comes back, and that worlds are subgroups."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks.run import Ranks

torch = pytest.importorskip("torch")


def total(rank: Any, add: int) -> tuple[int, int, float]:
    """Of this module, so that ranks import it."""
    x = torch.full((2,), float(rank.index + add))
    torch.distributed.all_reduce(x, group=rank.group)
    return rank.index, rank.world_size, x[0].item()


@pytest.mark.parametrize("world", [4, 1, 3, 2, 4])
def test_worlds_are_subgroups_of_one_start(four_ranks: Ranks, world: int) -> None:
    expected = sum(range(world)) + 10.0 * world
    assert four_ranks.run(total, 10, world=world) == [(i, world, expected) for i in range(world)]


def test_the_second_call_runs_in_the_same_processes_and_imports_nothing(four_ranks: Ranks) -> None:
    def look(rank: Any) -> tuple[int, bool, int]:
        import sys

        known, sys._lab_seen = getattr(sys, "_lab_seen", 0), 1  # type: ignore[attr-defined]
        return os.getpid(), "torch" in sys.modules, known

    first, second = four_ranks.run(look), four_ranks.run(look)
    assert [pid for pid, _, _ in first] == list(four_ranks.pids) == [pid for pid, _, _ in second]
    assert len(set(four_ranks.pids)) == 4
    assert os.getpid() not in four_ranks.pids
    assert all(torch_is_there for _, torch_is_there, _ in first)
    assert [known for _, _, known in second] == [1] * 4


def test_closures_classes_and_arrays_travel(four_ranks: Ranks) -> None:
    class Record:
        def __init__(self, values: np.ndarray) -> None:
            self.values = values

    factor = 3

    def scaled(rank: Any, record: Record) -> Record:
        return Record(record.values * factor + rank.index)

    found = four_ranks.run(scaled, Record(np.arange(5)), world=2)
    assert all(type(record) is Record for record in found)
    assert [record.values.tolist() for record in found] == [[0, 3, 6, 9, 12], [1, 4, 7, 10, 13]]


def test_functions_of_a_notebook_show_their_lines_in_tracebacks(four_ranks: Ranks) -> None:
    import linecache

    source = "def cell(rank):\n    import linecache\n    return linecache.getline(__cell__, 3)\n"
    name = "<a cell>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "__main__", "__cell__": name}
    exec(compile(source, name, "exec"), space)
    assert four_ranks.run(space["cell"], world=1) == ["    return linecache.getline(__cell__, 3)\n"]


def test_output_logs_and_progress_reach_the_parent(
    four_ranks: Ranks, capfd: pytest.CaptureFixture[str]
) -> None:
    def speak(rank: Any) -> None:
        print("printed by", rank.index)
        os.write(2, b"from below\n")
        rank.log("logged", rank.index)
        for _ in rank.progress(iter(range(3)), np.int64(3), "steps"):  # a total that NumPy has summed up
            pass
        print("x" * 20_000)
        print("no end of line", end="")

    four_ranks.run(lambda rank: None)
    capfd.readouterr()
    four_ranks.run(speak, world=2)
    shown = capfd.readouterr()
    for rank in (0, 1):
        lines = re.findall(rf"^rank {rank}: (.*)$", shown.out, re.MULTILINE)
        assert lines[:3] == [f"printed by {rank}", "from below", f"logged {rank}"]
        assert "".join(lines[3:-1]) == "x" * 20_000
        assert lines[-1] == "no end of line"
        assert re.search(rf"rank {rank}: steps: 100%.* 3/3", shown.err)


def test_cpu_ranks_have_one_thread_and_take_no_gpu(four_ranks: Ranks) -> None:
    def look(rank: Any) -> tuple[Any, ...]:
        import numba

        names = ("LAB_DEVICE", "NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS")
        threads = torch.get_num_threads(), numba.get_num_threads()
        return rank.device, rank.backend, threads, [os.environ[name] for name in names]

    assert four_ranks.run(look, world=2) == [("cpu", "gloo", (1, 1), ["cpu", "0", "1", "1"])] * 2


def sample(rank: Any, graph: Any) -> tuple[str, int]:
    from gnnsample_lab.device.jit_cache import FunctionStore

    kept = []
    FunctionStore.save_overload = lambda *a: kept.append(a)  # type: ignore[assignment, method-assign]
    with rank.zero_first():
        batch = lab.NeighborSampler(graph, [5, 5], seed=7).sample(np.arange(32), batch_id=3)
    return np.asarray(batch.node_ids).tobytes().hex(), len(kept)


def test_ranks_share_the_warm_cache_of_compiled_functions_and_draw_the_same(four_ranks: Ranks) -> None:
    graph = lab.rmat(256, 2048, device="cpu")
    sampler = lab.NeighborSampler(graph, [5, 5], seed=7, device="cpu")
    expected = np.asarray(sampler.sample(np.arange(32), batch_id=3).node_ids).tobytes().hex()
    assert four_ranks.run(sample, graph) == [(expected, 0)] * 4


def hosts(rank: Any, parts: list[list[int]]) -> float:
    x = torch.full((1,), float(2**rank.index))
    torch.distributed.all_reduce(x, group=rank.split(parts))
    return x.item()


def test_split_makes_groups_that_play_hosts(four_ranks: Ranks) -> None:
    assert four_ranks.run(hosts, [[0, 1], [2, 3]]) == [3, 3, 12, 12]
    assert four_ranks.run(hosts, [[1], [0]], world=2) == [1, 2]
    # Two ranks have made more groups than the others by now.
    assert four_ranks.run(hosts, [[0, 3], [2, 1]]) == [9, 6, 6, 9]
    assert four_ranks.run(hosts, [[0, 1], [2, 3]]) == [3, 3, 12, 12]
    assert four_ranks.run(hosts, [[2, 0], [1]], world=3) == [5, 2, 5]


def system_threads(rank: Any) -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def make_and_leave_groups(rank: Any, leave: bool) -> tuple[float, int]:
    """The sum of three groups' collectives, and the threads of this process with the groups."""
    groups = [rank.another_group() for _ in range(3)]
    x = torch.ones(1)
    for group in groups:
        torch.distributed.all_reduce(x, group=group)
        if leave:
            rank.leave_group(group)
    return x.item(), system_threads(rank)


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux lists them")
def take_groups_again(rank: Any) -> list[Any]:
    """What is made after groups were left: the same ones, others, or new ones, and what collectives of them give."""
    groups = rank._groups
    groups.KEPT = ("gloo",)  # as with NCCL

    def total(group: Any) -> float:
        x = torch.ones(1) * (rank.index + 1)
        torch.distributed.all_reduce(x, group=group)
        return float(x)

    def leave(*left: Any) -> None:
        for group in left:
            rank.leave_group(group)
        rank.end_left()

    try:
        made = [rank.another_group() for _ in range(2)]
        pairs = rank.another_group(parts=[[0, 2], [1, 3]])
        leave(*(made if rank.index % 2 else made[::-1]), pairs)  # in any order
        again = [rank.another_group() for _ in range(3)]
        others = rank.another_group(parts=[[0, 1], [2, 3]]), rank.another_group(parts=[[0, 2], [1, 3]])
        same = (
            again[0] is made[0],
            again[1] is made[1],
            again[2] in made,
            others[0] is pairs,
            others[1] is pairs,
        )
        totals = [total(group) for group in (*again, *others)]
        leave(*again, *others)
        if rank.index == 3:
            groups._kept.clear()  # one that has kept nothing: all make a new one
        new = rank.another_group()
        found = [same, totals, new in again, total(new)]
    finally:
        del groups.KEPT
        groups._kept.clear()
    return found


def test_groups_that_were_left_are_taken_again(four_ranks: Ranks) -> None:
    for rank, (same, totals, is_old, total) in enumerate(four_ranks.run(take_groups_again)):
        assert same == (True, True, False, False, True)
        assert totals == [10.0, 10.0, 10.0, (3.0, 7.0)[rank // 2], (4.0, 6.0)[rank % 2]]
        assert not is_old and total == 10.0


def test_groups_that_were_left_end_before_the_next_function(four_ranks: Ranks) -> None:
    before = four_ranks.run(system_threads, world=2)
    for _ in range(2):
        sums, during = zip(*four_ranks.run(make_and_leave_groups, True, world=2), strict=True)
        assert sums == (8.0, 8.0)
        assert all(now >= then + 3 for now, then in zip(during, before, strict=True)), (before, during)
        assert four_ranks.run(system_threads, world=2) == before
    assert lab.distributed.coordination.demo("central", ranks=four_ranks, timeout_s=60).passed
    assert four_ranks.run(system_threads, world=2) == before
    # Kept ones stay, and are not in the way of later ones.
    assert four_ranks.run(make_and_leave_groups, False, world=2)[0][0] == 8.0
    now = four_ranks.run(system_threads, world=2)
    assert all(count >= then + 3 for count, then in zip(now, before, strict=True)), (now, before)
    assert four_ranks.run(hosts, [[0, 3], [2, 1]]) == [9, 6, 6, 9]


def test_zero_first_is_first(four_ranks: Ranks, tmp_path: Any) -> None:
    def touch(rank: Any) -> bool:
        with rank.zero_first():
            there = (tmp_path / "made").exists()
            (tmp_path / "made").touch()
        return there

    assert four_ranks.run(touch) == [False, True, True, True]


def refusals(rank: Any) -> list[str]:
    calls = [
        lambda: rank.split([[0]]),
        lambda: rank.split([[0, 1], [1]]),
        lambda: rank.split([[0, 1], []]),
        lambda: rank.split([[0, 2]]),
        lambda: rank.split("ab"),
        lambda: rank.split([["a"]]),
        lambda: rank.split([[0.5, 1]]),
        lambda: rank.progress(3),
        lambda: rank.progress([], total=-1),
        lambda: rank.progress([], text=3),
        lambda: rank.stage(3).__enter__(),
    ]
    found = []
    for call in calls:
        try:
            call()
        except (TypeError, ValueError) as error:
            found.append(str(error).split()[0])
        else:
            found.append("accepted")
    return found


def test_a_rank_refuses_bad_arguments(four_ranks: Ranks) -> None:
    names = ["parts"] * 7 + ["items", "total", "text", "name"]
    assert four_ranks.run(refusals, world=2) == [names] * 2


def test_what_cannot_travel_is_refused_before_it_is_sent(
    four_ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    pids, lock = four_ranks.run(lambda rank: os.getpid()), threading.Lock()
    with pytest.raises(TypeError, match="fn must be something that can be pickled.*lock"):
        four_ranks.run(lambda rank: lock)
    with pytest.raises(TypeError, match=r"args\[1\] must be something that can be pickled.*lock"):
        four_ranks.run(total, 1, lock)
    monkeypatch.setattr("gnnsample_lab.distributed.ranks.run.LIMIT_BYTES", 10_000)
    with pytest.raises(ValueError, match="fn and args must be at most 10000 bytes"):
        four_ranks.run(total, bytes(20_000))
    assert list(four_ranks.pids) == pids
