"""Partitions and parts as files: found again, shared, never trusted blindly."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import gnnsample_lab as lab
from gnnsample_lab import cli
from gnnsample_lab.device.arrays import is_memory_mapped
from gnnsample_lab.distributed.parts import partition as module
from gnnsample_lab.distributed.parts import storage
from gnnsample_lab.graph import cache, roots
from tests.minibatch.conftest import random_graph

partition = lab.distributed.partition


@pytest.fixture(scope="module")
def graph() -> lab.Graph:
    rng = np.random.default_rng(0)
    return random_graph(
        1, feat=rng.random((120, 3), dtype=np.float32), label=np.arange(120) % 4, splits={"train": [9, 2]}
    )


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods that were computed, in order."""
    calls: list[str] = []
    original = module._computed

    def computed(graph, parts, seeds, request):
        calls.append(request["method"])
        return original(graph, parts, seeds, request)

    monkeypatch.setattr(module, "_computed", computed)
    return calls


@pytest.mark.parametrize("method", ["metis", "streaming"])
def test_a_partition_is_computed_once(graph, counted, method):
    first = partition(graph, 3, method, tolerance=3)
    again = partition(graph, 3, method, tolerance=3)
    assert counted == [method] and is_memory_mapped(again.owner)
    assert again.digest() == first.digest() and again.seconds == first.seconds > 0
    assert again.measures() == first.measures() and (again.traffic == first.traffic).all()
    partition(
        lab.Graph(graph.indptr, graph.indices, splits=graph.splits, name=graph.name), 3, method, tolerance=3
    )
    assert len(counted) == 1, "weights and features do not change a partition"


OTHERS = [
    {"seed": 1}, {"tolerance": 2.9}, {"seeds": [1]}, {"parts": 2}, {"graph": random_graph(5)}, {"use_cache": False}
]  # fmt: skip


@pytest.mark.parametrize("changed", OTHERS, ids=str)
def test_another_request_is_computed_anew(graph, counted, changed):
    asked = {"graph": graph, "parts": 3, "method": "streaming", "tolerance": 3}
    partition(**asked)
    partition(**{**asked, **changed})
    assert len(counted) == 2


def test_cheap_methods_leave_no_files(graph):
    partition(graph, 3, "random", tolerance=3)
    partition(graph, 3, "range", tolerance=3)
    assert not list(roots.data_root().rglob("*.npy"))


def test_a_damaged_cache_is_computed_anew(graph, counted):
    first = partition(graph, 3, "streaming", tolerance=3).digest()
    (owner,) = roots.data_root().rglob("owner.npy")
    content = bytearray(owner.read_bytes())
    content[-1] ^= 1
    owner.write_bytes(content)
    with pytest.warns(UserWarning, match=r"owner\.npy is damaged"):
        again = partition(graph, 3, "streaming", tolerance=3)
    assert len(counted) == 2 and again.digest() == first


def test_without_a_cache_folder_it_is_computed(graph, counted, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        partition(graph, 3, "streaming", tolerance=3, root=tmp_path / "file" / "root")
    assert len(counted) == 2
    with pytest.raises(PermissionError, match="root"):
        lab.distributed.save_parts(
            graph, partition(graph, 3, "range", tolerance=3), root=tmp_path / "file" / "root"
        )


def test_saved_parts_are_the_parts(graph, tmp_path):
    found = partition(graph, 3, "random", tolerance=3)
    folder = lab.distributed.save_parts(graph, found, tmp_path / "deep" / "parts")
    assert folder == tmp_path / "deep" / "parts"
    opened = lab.distributed.open_partition(folder)
    assert opened.digest() == found.digest() and is_memory_mapped(opened.new_of)
    assert (lab.distributed.open_records(folder) == lab.distributed.vertex_records(graph, found)).all()
    for rank in range(3):
        here, there = lab.distributed.open_part(folder, rank), lab.distributed.part_of(graph, found, rank)
        assert here.arrays().keys() == there.arrays().keys() and is_memory_mapped(here.indices)
        for name, array in there.arrays().items():
            assert (getattr(here, name) == array).all() and getattr(here, name).dtype == array.dtype, name
        assert (here.rank, here.num_parts, here.num_nodes) == (rank, 3, 120)
        assert here.partition_digest == found.digest()


def test_parts_know_of_which_weights_and_features_they_are(graph, tmp_path):
    found = partition(graph, 2, "random", tolerance=2)
    plain = dataclasses.replace(graph, edge_weight=None)
    other = dataclasses.replace(graph, feat=graph.feat + 1)
    folders = [
        lab.distributed.save_parts(one, found, tmp_path / str(number), features=number < 3)
        for number, one in enumerate([plain, graph, other, graph])
    ]
    unweighted, both, others, bare = (
        [dict(lab.distributed.open_part(f, p).digests) for p in (0, 1)] for f in folders
    )
    assert all(first == second for first, second in (unweighted, both, others, bare))
    assert both[0].keys() == {"edge_weight", "feat"}
    assert unweighted[0] == {"feat": both[0]["feat"]} and bare[0] == {"edge_weight": both[0]["edge_weight"]}
    assert others[0]["edge_weight"] == both[0]["edge_weight"] and others[0]["feat"] != both[0]["feat"]


def test_parts_of_older_versions_open(graph, tmp_path):
    part = lab.distributed.part_of(graph, partition(graph, 2, "random", tolerance=2), 1)
    values = {name: getattr(part, name) for name in ("rank", "num_parts", "num_nodes", "partition_digest")}
    facts = {"format": storage._PART, "version": module.VERSION, "stamp": "", "values": values}
    cache.write_folder(tmp_path / "part-00001", part.arrays(), facts)
    opened = lab.distributed.open_part(tmp_path, 1)
    assert opened.digests == {} and (opened.indices == part.indices).all()


def test_parts_that_are_there_stay(graph):
    found = partition(graph, 2, "random", tolerance=2)
    folder = lab.distributed.save_parts(graph, found)
    assert folder.is_relative_to(roots.data_root())
    times = {path: path.stat().st_ino for path in folder.rglob("*")}
    assert lab.distributed.save_parts(graph, found) == folder
    assert {path: path.stat().st_ino for path in folder.rglob("*")} == times
    without = lab.distributed.save_parts(graph, found, features=False)
    assert without != folder and lab.distributed.open_part(without, 0).feat is None


def test_parts_of_other_features_are_written_again(graph, tmp_path):
    found = partition(graph, 2, "random", tolerance=2)
    folder = lab.distributed.save_parts(graph, found, tmp_path / "p")
    other = dataclasses.replace(graph, feat=graph.feat + 1)
    lab.distributed.save_parts(other, found, folder)
    part = lab.distributed.open_part(folder, 0)
    assert (part.feat == graph.feat[part.vertices] + 1).all()


def test_writing_to_a_peers_part_changes_no_file(graph, tmp_path):
    folder = lab.distributed.save_parts(graph, partition(graph, 2, "random", tolerance=2), tmp_path / "p")
    mine = lab.distributed.open_part(folder, 1)
    before = int(mine.indices[0])
    mine.indices[0] = before + 1
    assert int(lab.distributed.open_part(folder, 1).indices[0]) == before


def test_another_process_opens_them(graph, tmp_path):
    found = partition(graph, 2, "random", tolerance=2)
    folder = lab.distributed.save_parts(graph, found, tmp_path / "p")
    for path in sorted(folder.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    code = (
        "import sys, gnnsample_lab as lab; d = lab.distributed; f = sys.argv[1]; "
        "print(int(d.open_part(f, 1).indices.sum()), d.open_partition(f).digest(), 'torch' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    total = int(lab.distributed.part_of(graph, found, 1).indices.sum())
    assert run.stdout.split() == [str(total), found.digest(), "False"]
    for path in folder.rglob("*"):
        path.chmod(0o755)


SAVES = """
import sys
import gnnsample_lab as lab
from gnnsample_lab.distributed.parts import part, partition, storage

computed, wrote = partition._computed, storage.part_of
partition._computed = lambda *given: print("computed") or computed(*given)
storage.part_of = lambda *given, **options: print("wrote") or wrote(*given, **options)
graph = lab.rmat(2**12, 2**15)
found = lab.distributed.partition(graph, 4, "streaming")
print(lab.distributed.save_parts(graph, found))
"""


@pytest.mark.slow
def test_of_several_processes_one_computes_and_writes():
    started = [
        subprocess.Popen([sys.executable, "-c", SAVES], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    said = [process.communicate(timeout=120)[0].split() for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    words = [word for lines in said for word in lines]
    assert words.count("computed") == 1 and words.count("wrote") == 4
    (folder,) = {lines[-1] for lines in said}
    assert sum(lab.distributed.open_part(folder, rank).num_edges for rank in range(4)) > 2**15


def test_what_cannot_be_opened_is_said(graph, tmp_path):
    with pytest.raises(FileNotFoundError, match="save_parts"):
        lab.distributed.open_part(tmp_path, 0)
    folder = lab.distributed.save_parts(graph, partition(graph, 2, "random", tolerance=2), tmp_path / "p")
    with pytest.raises(FileNotFoundError, match="part-00002"):
        lab.distributed.open_part(folder, 2)
    (folder / "part-00000" / "indices.npy").write_bytes(b"no array")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(lab.CorruptDataError, match="part-00000"):
            lab.distributed.open_part(folder, 0)
        lab.distributed.save_parts(graph, partition(graph, 2, "random", tolerance=2), tmp_path / "p")
    assert lab.distributed.open_part(folder, 0).num_edges > 0


# ---- the command ----------------------------------------------------------------------------------------------


def test_the_command_computes_beforehand(capsys, counted):
    asked = ["partition", "rmat", "--scale", "0.0005", "--parts", "2", "3", "--method", "streaming", "--json"]
    assert cli.main(asked) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["parts"] for row in rows] == [2, 3] and counted == ["streaming"] * 2
    assert all(row["partition_s"] > 0 and 0 < row["cut_share"] < 1 for row in rows)
    graph = lab.load("rmat", scale=0.0005)
    assert partition(graph, 3, "streaming").seconds == pytest.approx(rows[1]["partition_s"], rel=1e-6)
    assert len(counted) == 2
    assert cli.main([*asked[:-1], "--save"]) == 0
    table = capsys.readouterr().out
    assert "partition_s" in table and lab.distributed.open_part(Path(table.split()[-1]), 2).num_parts == 3


def test_errors_of_the_command_are_one_line(capsys):
    assert cli.main(["partition", "nothing-of-this-name", "--parts", "2"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert cli.main(["partition", "rmat", "--scale", "0.0005", "--parts", "0"]) == 1
    assert "parts must be" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--save"]], ids=str)
def test_the_command_refuses_a_root_that_cannot_be_written(more, counted, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("not a folder")
    unwritable = tmp_path / "file" / "root"
    asked = ["partition", "rmat", "--scale", "0.0005", "--parts", "2", "--method", "streaming", *more]
    assert cli.main([*asked, "--root", str(unwritable)]) == 1
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1 and counted == []
    assert f"root '{unwritable}' cannot be written to" in said.err
    # A root that others share may be read-only: then there is the user's cache, and without that nothing can be stored.
    monkeypatch.setenv("LAB_DATA_ROOT", str(unwritable))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cli.main(asked) == 0 and list((tmp_path / "cache").rglob("owner.npy"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(unwritable))
    assert cli.main(asked) == 1 and "cannot be written to" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["partition", "part-00000"])
def test_saving_parts_removes_nothing_of_the_users(graph, tmp_path, name):
    cut = partition(graph, 2, "random", tolerance=3)
    hidden = tmp_path / ".my-notes.abcd1234"
    for folder in (hidden, tmp_path / name):
        folder.mkdir()
        (folder / "thesis.txt").write_text("mine")
    with pytest.raises(
        FileExistsError, match=f"{name}' must be empty, missing or one that gnnsample_lab wrote"
    ):
        lab.distributed.save_parts(graph, cut, tmp_path)
    (tmp_path / name).rename(tmp_path / "elsewhere")
    lab.distributed.save_parts(graph, cut, tmp_path)
    assert (hidden / "thesis.txt").exists() and (tmp_path / "elsewhere" / "thesis.txt").exists()
    assert lab.distributed.open_part(tmp_path, 1).rank == 1
