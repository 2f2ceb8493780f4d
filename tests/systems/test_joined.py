"""``lab.train`` by processes that are ranks themselves, on one host and on several: the losses of one device."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab.distributed.ranks.rank import Rank
from gnnsample_lab.systems.table import SYSTEMS

torch = pytest.importorskip("torch")

QUICK: dict[str, Any] = {
    "fanouts": (3, 4), "hidden": 16, "batch_size": 64, "lr": 0.01, "progress": False, "epochs": 2, "pick": "floyd",
}  # fmt: skip
SCRIPT = Path(__file__).resolve().parents[2] / "notebooks" / "scripts" / "train_on_hosts.py"


@pytest.fixture(scope="module")
def expected(graph):
    return lab.train(graph, system="dgl", device="cpu", **QUICK)


def as_host(rank: Rank) -> Rank:
    """The rank as if it were the only one of its host."""
    return Rank(
        rank.index, rank.world_size, device=rank.device, backend=rank.backend, group=rank.group, groups=rank._groups,
        timeout_s=rank.timeout_s, tell=rank._tell, local_index=0, local_size=1,
    )  # fmt: skip


def trained(rank: Rank, graph: Any, hosts: bool, options: dict[str, Any]) -> Any:
    return replace(
        lab.train(graph, ranks=as_host(rank) if hosts else rank, **{**QUICK, **options}), network=None
    )


def refused(rank: Rank, graph: Any, hosts: bool, options: dict[str, Any], of_rank: Any = ()) -> str:
    mine = {**options, **(of_rank[rank.index] if of_rank else {})}
    try:
        trained(rank, graph, hosts, mine)
    except (TypeError, ValueError) as error:
        return "\n".join([str(error), *getattr(error, "__notes__", [])])
    return "nothing was refused"


@pytest.mark.parametrize(
    ("hosts", "options"),
    [
        (False, {"system": "gnnlab"}),
        (False, {"system": "dsp"}),
        (True, {"system": "lab"}),
        (True, {"system": "nextdoor"}),
        (True, {"system": "dgl-uva"}),
        (True, {"system": "quiver"}),
        (True, {"system": "dsp-seq"}),
        (True, {"system": "dsp", "coordinated": False}),
    ],
)
def test_joined_ranks_train_as_one_device_does(graph, expected, pair, hosts, options):
    if options["system"] == "nextdoor":  # whose samples are others
        expected = lab.train(graph, device="cpu", **{**QUICK, **options, "pick": None})
        options = {**options, "pick": None}
    first, second = pair.run(trained, graph, hosts, options)
    np.testing.assert_allclose(first.losses, expected.losses, atol=1e-5)
    assert first.batch_ids == expected.batch_ids and first.accuracy == pytest.approx(expected.accuracy)
    assert (first.losses, first.accuracy, first.memory) == (second.losses, second.accuracy, second.memory)
    assert first.ranks == 2 and first.origin == "measured on 2 CPU processes" + " of 2 hosts" * hosts
    assert [m.rank for m in first.memory] == [0, 1]
    for one, other in zip(first.epochs, second.epochs, strict=True):
        assert one.numbers == pytest.approx(other.numbers, nan_ok=True) and one.events == other.events
        assert {e.rank for e in one.events if e.stage == "train"} == {0, 1}
    topology = graph.indptr.nbytes + graph.indices.nbytes
    if hosts and SYSTEMS[options["system"]].topology == "parts":
        assert all(m.topology >= topology for m in first.memory), "each host holds all of it"


@pytest.mark.parametrize("method", ["csp", "csp-fixed"])
def test_parts_are_spread_over_hosts(graph, expected, pair, method):
    cut = lab.distributed.partition(graph, 2, "random", tolerance=2)
    system = replace(SYSTEMS["dsp-seq"], name=method, method=method)
    options = {"system": system, "parts": cut, "cache_ratio": 0.2}
    first, _ = pair.run(trained, graph, True, options)
    np.testing.assert_allclose(first.losses, expected.losses, atol=1e-5)
    topology = graph.indptr.nbytes + graph.indices.nbytes
    assert all(0 < m.topology < 0.7 * topology for m in first.memory)


def test_a_module_starts_from_the_weights_of_rank_0(graph, pair):
    def work(rank: Any, graph: Any) -> Any:
        torch.manual_seed(rank.index)
        model = lab.make_model("sage", graph.num_features, 16, graph.num_classes, num_layers=2)
        found = lab.train(graph, model, "gnnlab", ranks=rank, **QUICK)
        assert found.network is model
        return found.losses, {name: value.numpy() for name, value in model.state_dict().items()}

    (losses, weights), (_, others) = pair.run(work, graph)
    torch.manual_seed(0)
    model = lab.make_model("sage", graph.num_features, 16, graph.num_classes, num_layers=2)
    alone = lab.train(graph, model, "gnnlab", device="cpu", **QUICK)
    np.testing.assert_allclose(losses, alone.losses, atol=1e-5)
    for name, value in weights.items():
        np.testing.assert_array_equal(value, others[name])


def test_dropout_is_noted_on_all_ranks(graph, pair):
    for found in pair.run(trained, graph, False, {"system": "gnnlab", "dropout": 0.5}):
        assert sum("masks of dropout" in note for note in found.notes) == 1


@pytest.mark.parametrize(
    ("system", "named"),
    [("dgl-uva", "method='uva' reads its peers' memory"), ("quiver", "method='uva' reads its peers' memory")],
)
def test_what_reads_memory_of_peers_is_refused_between_hosts(graph, pair, system, named):
    cut = lab.distributed.partition(graph, 2, "random", tolerance=2)
    for message in pair.run(refused, graph, True, {"system": system, "parts": cut}):
        assert named in message and "other hosts" in message


def test_what_joined_ranks_do_not_do(graph, pair):
    sampler = lab.NeighborSampler(graph, [3, 4], device="cpu")
    for hosts, options, named in (
        (True, {"system": "dsp"}, "coordinated must be False for ranks of several hosts"),
        (False, {"executor": "factored"}, "executor='factored' needs the process that starts the ranks"),
        (False, {"device": "cuda"}, "device must be the rank's, 'cpu' or 'auto' (got 'cuda')"),
        (False, {"on_progress": print}, "on_progress is for one device"),
        (False, {"sampler": sampler, "pick": None}, "sampler cannot be given with several ranks"),
    ):
        messages = pair.run(refused, graph, hosts, options)
        assert all(named in message for message in messages), messages


def test_arguments_that_differ_are_named_on_all_ranks(graph, pair):
    few = replace(graph, splits={**graph.splits, "train": graph.splits["train"][:100]})
    for of_rank, named in (
        ([{"seed": 1}, {"seed": 2}], "seed must be the same on all ranks (got 1 on rank 0, 2 on rank 1)"),
        ([{}, {"dropout": 0.5}], "options must be the same on all ranks"),
        ([{"device": "auto"}, {"device": "cuda"}], "device must be the rank's"),
    ):
        for message in pair.run(refused, graph, False, {}, of_rank):
            assert named in message

    def work(rank: Any, *graphs: Any) -> str:
        return refused(rank, graphs[rank.index], False, {})

    indices = graph.indices.copy()
    indices[graph.indptr[1:][np.diff(graph.indptr) > 0] - 1] = graph.num_nodes - 1  # the last of each list
    turned = {**graph.splits, "train": graph.splits["train"][::-1]}
    for other, named in (
        (few, "splits must be the same on all ranks"),
        (replace(graph, splits=turned), "splits must be the same on all ranks"),
        (replace(graph, indices=indices), "topology must be the same on all ranks"),
        (replace(graph, label=graph.label[::-1].copy()), "labels must be the same on all ranks"),
        (replace(graph, feat=graph.feat + 1), "rows of features must be the same on all ranks"),
        (
            replace(graph, edge_weight=np.ones(graph.num_edges, np.float32)),
            "edge weights must be the same on all ranks",
        ),
    ):
        for index, message in enumerate(pair.run(work, graph, other)):
            assert named in message and message.endswith(f"on rank {index} of 2, host 0"), message


def test_what_fails_while_ranks_train_is_told_to_all(graph, pair):
    """And an argument that all refuse is not: they can go on."""

    class Life:
        def __init__(self, cause: Exception | None) -> None:
            self.checks, self.told, self.cause = 0, [], cause

        def check(self) -> None:
            self.checks += 1

        def failed(self, error: BaseException) -> Exception | None:
            self.told.append(str(error))
            return self.cause

    class Failing(torch.nn.Linear):
        def forward(self, blocks: Any, x: Any) -> Any:
            raise LookupError("no such vertex")

    def work(rank: Any, graph: Any) -> Any:
        rank.life = life = Life(lab.distributed.RankError("of rank 0", 0, "train") if rank.index else None)
        raised = []
        try:
            for model, options in (("sage", {"seed": rank.index}), (Failing(2, 2), {})):
                try:
                    lab.train(graph, model, "gnnlab", ranks=rank, **{**QUICK, **options})
                except (ValueError, LookupError, RuntimeError) as error:
                    raised.append((type(error).__name__, str(error), repr(error.__cause__)))
        finally:
            rank.life = None
        return raised, life.told, life.checks > 1

    for index, (raised, told, is_checked) in enumerate(pair.run(work, graph)):
        assert raised[0][0] == "ValueError" and "seed must be the same" in raised[0][1]
        own = "LookupError('no such vertex')"
        assert raised[1] == (
            ("RankError", "of rank 0", own) if index else ("LookupError", "no such vertex", "None")
        )
        assert told == ["no such vertex"] and is_checked


def test_ranks_that_would_go_on_from_different_places_are_refused(graph, pair, tmp_path):
    """Hosts have files of their own: a checkpoint of an earlier run, or none, where rank 0 has today's."""
    options = {**QUICK, "system": "gnnlab", "device": "cpu", "evaluate": False}
    for name, epochs in (("old", 1), ("new", 2)):
        lab.train(graph, checkpoint=tmp_path / name, **{**options, "epochs": epochs})
    more = {**options, "epochs": 3}
    for names in (("new", "old"), ("new", "none"), ("new", None)):
        of_rank = [{"resume": None if name is None else tmp_path / name} for name in names]
        for message in pair.run(refused, graph, False, more, of_rank):
            assert "resume must be the same on all ranks (got a file with checksum" in message
    (tmp_path / "copy").write_bytes((tmp_path / "new").read_bytes())
    found = pair.run(
        lambda rank: trained(rank, graph, True, {**more, "resume": tmp_path / ("new", "copy")[rank.index]})
    )
    assert found[0].losses == found[1].losses and found[0].resumed == 10


def test_the_line_of_the_notebook_names_a_script_that_is_there():
    notebook = json.loads((SCRIPT.parents[1] / "10_many_gpus.ipynb").read_text())
    [code] = ["".join(cell["source"]) for cell in notebook["cells"] if cell["id"] == "hosts"]
    assert f'"{SCRIPT.relative_to(SCRIPT.parents[1])}"' in code


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="names the loopback interface as Linux does")
def test_the_shipped_script_trains_on_two_hosts(pair, tmp_path):
    """``torchrun`` twice, each standing for a host with a rank of its own."""
    arguments = [
        "--scale",
        "0.01",
        "--fanouts",
        "3",
        "2",
        "--batch-size",
        "64",
        "--epochs",
        "1",
        "--device",
        "cpu",
    ]
    notes = tmp_path / "notes.py"
    notes.write_text(
        "import json, os, pathlib, runpy, sys\n"
        f"losses = runpy.run_path({str(SCRIPT)!r})['main'](sys.argv[1:])\n"
        f"pathlib.Path({str(tmp_path)!r}, os.environ['RANK'] + '.json').write_text(json.dumps(losses))\n"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    line = lab.distributed.torchrun_line(
        notes, *arguments, hosts=2, ranks_per_host=1, host="127.0.0.1", port=port
    )
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "LAB_DATA_ROOT": str(tmp_path),
        "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    words = [sys.executable, "-m", "torch.distributed.run", *shlex.split(line)[1:]]
    with contextlib.ExitStack() as stack:
        hosts = [
            stack.enter_context(
                subprocess.Popen(
                    words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
            )
            for _ in range(2)
        ]
        try:
            printed = [host.communicate(timeout=240)[0] for host in hosts]
        finally:
            for host in hosts:
                host.kill()
    assert [host.returncode for host in hosts] == [0, 0], "\n".join(printed)
    assert sum("measured on 2 CPU processes of 2 hosts" in text for text in printed) == 1
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    small = lab.load("arxiv-like", root=tmp_path, scale=0.01)
    options = {"fanouts": [3, 2], "batch_size": 64, "progress": False}
    expected = lab.train(small, "sage", "dsp-seq", ranks=pair, **options)
    for losses in found:
        np.testing.assert_allclose(losses, expected.losses, atol=1e-5)
