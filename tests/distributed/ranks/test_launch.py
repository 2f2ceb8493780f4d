"""Which backend a start gets, the one-call form, and ``torchrun``."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gnnsample_lab as lab
from gnnsample_lab.device.runtime import cuda_available
from gnnsample_lab.distributed.ranks import backends
from tests.distributed.conftest import left_after

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow  # each test starts its own ranks


def test_run_gives_results_by_rank_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAB_DEVICE", raising=False)
    monkeypatch.setattr(backends, "nccl_problem", lambda ranks: f"no {ranks} GPUs for a test")

    def work(rank: Any, add: int) -> tuple[int, int, int]:
        return rank.index + add, rank.world_size, os.getpid()

    found = lab.distributed.run(work, 5, ranks=2)
    assert [(value, size) for value, size, _ in found] == [(5, 2), (6, 2)]
    assert not left_after([pid for _, _, pid in found])
    assert "2 ranks on Gloo, on CPUs: no 2 GPUs for a test" in capsys.readouterr().out


def test_auto_is_nccl_where_there_are_gpus_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_DEVICE", raising=False)
    monkeypatch.setattr(backends, "nccl_problem", lambda ranks: None if ranks <= 2 else "two GPUs alone")
    assert backends.choose("auto", 2) == ("nccl", "GPUs 0 to 1")
    assert backends.choose("cuda", 1) == ("nccl", "GPU 0")
    assert backends.choose("auto", 3) == ("gloo", "two GPUs alone")
    assert backends.choose("cpu", 2)[0] == "gloo"
    with pytest.raises(RuntimeError, match="device='cuda' was asked for with ranks=3, but two GPUs alone"):
        backends.choose("cuda", 3)
    monkeypatch.setenv("LAB_DEVICE", "cpu")
    assert backends.choose("auto", 2) == ("gloo", "LAB_DEVICE='cpu'")
    monkeypatch.setenv("LAB_DEVICE", "tpu")
    with pytest.raises(ValueError, match="LAB_DEVICE"):
        backends.choose("auto", 2)


@pytest.mark.skipif(cuda_available(), reason="has a GPU")
def test_cuda_without_gpus_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="device='cuda' was asked for with ranks=2, but"):
        lab.distributed.run(print, device="cuda")


def test_ranks_without_cloudpickle_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(ImportError, match=r"gnnsample_lab\[distributed\]"):
        lab.distributed.Ranks(1, device="cpu")


def test_nothing_imports_torch_before_a_rank_needs_it() -> None:
    code = (
        "import sys, gnnsample_lab as lab; [getattr(lab.distributed, n) for n in lab.distributed.__all__]; "
    )
    code += "from gnnsample_lab.distributed.ranks import worker; assert 'torch' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


# ---- torchrun -------------------------------------------------------------------------------------------------


def test_the_line_for_several_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    line = lab.distributed.torchrun_line(
        "my train.py", "--epochs", 3, hosts=4, ranks_per_host=8, host="10.0.0.1", port=29400
    )
    assert capsys.readouterr().out == line + "\n"
    assert shlex.split(line) == [
        "torchrun", "--nnodes=4", "--nproc-per-node=8", "--rdzv-backend=c10d", "--rdzv-endpoint=10.0.0.1:29400",
        "--rdzv-id=lab", "my train.py", "--epochs", "3",
    ]  # fmt: skip


def test_ranks_import_what_lies_beside_a_notebook(tmp_path: Path) -> None:
    """A kernel has its folder as an empty entry of ``sys.path``; an entry that is no text is ignored by Python."""
    (tmp_path / "beside.py").write_text("def index(rank):\n    return rank.index + 7\n")
    code = (
        "import sys, pathlib\nassert '' in sys.path\nsys.path.append(pathlib.Path('elsewhere'))\n"
        "import beside, gnnsample_lab as lab\nprint(lab.distributed.run(beside.index, ranks=1, device='cpu'))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert ended.stdout == "[7]\n", ended.stderr


def test_a_script_of_torchrun_gets_the_same_rank(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        """
import torch, gnnsample_lab as lab
rank = lab.distributed.join("cpu", timeout_s=120)
assert lab.distributed.join() is rank
x = torch.tensor([float(rank.index + 1)])
torch.distributed.all_reduce(x, group=rank.group)
with rank.zero_first(), rank.stage("summing"):
    rank.log(rank.world_size, rank.local_index, rank.local_size, rank.host, rank.device, x.item())
assert list(rank.progress([1, 2])) == [1, 2]
"""
    )
    line = lab.distributed.torchrun_line(
        script, hosts=1, ranks_per_host=2, host="127.0.0.1", port=_free_port()
    )
    words = [sys.executable, "-m", "torch.distributed.run", *shlex.split(line)[1:]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment |= {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = sorted(line for line in ended.stdout.splitlines() if line.startswith("rank "))
    assert lines == [f"rank {i}: 2 {i} 2 0 cpu 3.0" for i in (0, 1)]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"backend": "nccl"}, "backend must be the same on all hosts (got gloo on rank 0, nccl on rank 2)"),
        (
            {"LOCAL_WORLD_SIZE": "1"},
            "ranks a host must be the same on all hosts (got 2 on rank 0, 1 on rank 2)",
        ),
    ],
)
def test_hosts_that_differ_do_not_wait_for_one_another(second: dict[str, str], words: str) -> None:
    """Two hosts of three ranks; the second one has GPUs, or room for one rank."""
    code = (
        "import sys, gnnsample_lab as lab; from gnnsample_lab.distributed.ranks import hosts\n"
        "hosts.choose = lambda device, count: (sys.argv[1], 'as the test says')\n"
        "lab.distributed.join(timeout_s=60)"
    )
    port, running = str(_free_port()), []
    for index in range(3):
        there = second if index == 2 else {}
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "RANK": str(index),
            "WORLD_SIZE": "3", "LOCAL_RANK": str(index % 2), "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port, **{name: value for name, value in there.items() if name.isupper()},
        }  # fmt: skip
        command = [sys.executable, "-c", code, there.get("backend", "gloo")]
        running.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
        )
    for one in running:
        assert words in one.communicate(timeout=120)[1]


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_join_outside_of_torchrun_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(RuntimeError, match="torchrun did not start this process"):
        lab.distributed.join()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"device": "tpu"}, "device"),
        ({"device": 3}, "device"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": "1"}, "timeout_s"),
    ],
)
def test_join_refuses_bad_arguments(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises((TypeError, ValueError), match=named):
        lab.distributed.join(**arguments)


# ---- GPUs -----------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.timeout(60)
@pytest.mark.usefixtures("two_gpus")
def test_two_gpus_all_reduce_by_nccl() -> None:
    import cupy

    def work(rank: Any) -> tuple[str, str, int, int, float, float]:
        x = torch.full((1 << 20,), float(rank.index + 1), device="cuda")
        torch.distributed.all_reduce(x, group=rank.group)
        rank.barrier()
        alone = torch.ones(1, device="cuda") * rank.index
        torch.distributed.all_reduce(alone, group=rank.split([[0], [1]]))
        return (
            rank.backend, rank.device, cupy.cuda.Device().id, torch.cuda.current_device(), x[0].item(), alone.item(),
        )  # fmt: skip

    with lab.distributed.Ranks(2, device="cuda", timeout_s=300) as ranks:
        pids = list(ranks.pids)
        assert ranks.run(work) == [("nccl", f"cuda:{i}", i, i, 3.0, float(i)) for i in (0, 1)]
        assert ranks.run(lambda rank: rank.world_size, world=1) == [1]
    assert not left_after(pids)
    assert lab.distributed.run(work, ranks=2)[1][:2] == ("nccl", "cuda:1")


@pytest.mark.gpu
@pytest.mark.timeout(60)
@pytest.mark.usefixtures("two_gpus")
def test_a_dead_rank_ends_a_collective_on_gpus() -> None:
    import signal

    def die(rank: Any) -> None:
        x = torch.ones(4, device="cuda")
        torch.distributed.all_reduce(x, group=rank.group)
        with rank.stage("loading"):
            if rank.index == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            torch.distributed.all_reduce(x, group=rank.group)
            torch.cuda.synchronize()

    with lab.distributed.Ranks(2, device="cuda", timeout_s=300) as ranks:
        pids = list(ranks.pids)
        with pytest.raises(lab.distributed.RankError, match="rank 1 failed in stage 'loading'"):
            ranks.run(die)
    assert not left_after(pids)
