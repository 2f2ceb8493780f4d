"""Our cache: what it keeps, when it is refused, and that it is complete or absent."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from gnnsample_lab.graph import Graph, cache, roots


@pytest.fixture
def graph() -> Graph:
    rng = np.random.default_rng(0)
    return Graph.from_edges(
        rng.integers(0, 50, 400), rng.integers(0, 50, 400), 50, edge_weight=rng.random(400),
        feat=rng.random((50, 4)), label=rng.integers(0, 3, 50), splits={"train": np.arange(9), "test": []},
        name="toy", is_synthetic=True,
    )  # fmt: skip


def folder_of(root, stamp="s"):
    return root / roots.CACHE_FOLDER / f"toy-{stamp}"


def test_a_cached_graph_is_the_same_and_memory_mapped(tmp_path, graph):
    stored = cache.store(tmp_path, "toy", "s", graph)
    opened = cache.open_cached(tmp_path, "toy", "s")
    for g in (stored, opened):
        assert g.digest() == graph.digest()
        assert isinstance(g.indices, np.memmap) and isinstance(g.feat, np.memmap)
        assert (g.name, g.is_synthetic, g.num_classes) == ("toy", True, graph.num_classes)
        assert g.max_in_degree == graph.max_in_degree and g.splits["test"].size == 0


@pytest.mark.parametrize(
    "name",
    ["étoile à quarante branches " * 20, "图" * 200, "x" * 1000, "𝔾" * 300],
    ids=["fr", "zh", "x", "4 bytes"],
)
def test_a_name_of_any_length_and_script_can_be_stored(tmp_path, graph, name):
    stored = cache.store(tmp_path, name, "s", replace(graph, name=name, splits={"train": [1], name: [2]}))
    assert (
        isinstance(stored.indices, np.memmap) and stored.name == name and stored.splits[name].tolist() == [2]
    )
    (folder,) = (tmp_path / roots.CACHE_FOLDER).iterdir()
    assert folder.name.startswith(name[:10].replace(" ", "_")) and folder.name.endswith("-s")


def test_nothing_else_is_left_behind_and_nothing_is_pickled(tmp_path, graph):
    cache.store(tmp_path, "toy", "s", graph)
    assert [p.name for p in (tmp_path / roots.CACHE_FOLDER).iterdir()] == ["toy-s"]
    assert {p.suffix for p in folder_of(tmp_path).iterdir()} == {".npy", ".json"}
    for path in folder_of(tmp_path).glob("*.npy"):
        np.load(path, allow_pickle=False)


def test_build_runs_once_and_again_for_another_stamp(tmp_path, graph):
    built = []

    def build():
        built.append(1)
        return graph

    for _ in range(3):
        cache.cached(tmp_path, "toy", "s", build)
    assert len(built) == 1
    cache.cached(tmp_path, "toy", "t", build)
    assert len(built) == 2
    cache.cached(tmp_path, "toy", "s", build, use=False)
    assert len(built) == 3


def damage_cut(folder):
    path = folder / "indices.npy"
    path.write_bytes(path.read_bytes()[:-4])


def damage_flip(folder):
    data = bytearray((folder / "indptr.npy").read_bytes())
    data[-1] ^= 1
    (folder / "indptr.npy").write_bytes(data)


def damage_swap(folder):
    (folder / "split_train.npy").write_bytes((folder / "label.npy").read_bytes())


def damage_json(folder):
    (folder / "graph.json").write_text((folder / "graph.json").read_text()[:-20])


def damage_version(folder):
    meta = json.loads((folder / "graph.json").read_text())
    (folder / "graph.json").write_text(json.dumps({**meta, "version": cache.VERSION + 1}))


def damage_missing(folder):
    (folder / "feat.npy").unlink()


def damage_middle(folder):
    """One vertex id far out of range in the middle: the ends of the file, its size and its header stay."""
    path = folder / "indices.npy"
    with path.open("r+b") as handle:
        handle.seek(path.stat().st_size // 2)
        handle.write(b"\xff\xff\xff\x7f")


def damage_middle_at_the_old_time(folder):
    """As a copy that keeps times: another file by its inode."""
    path = folder / "feat.npy"
    data, times = bytearray(path.read_bytes()), path.stat()
    data[len(data) // 2] ^= 0x40
    (folder / "copy").write_bytes(data)
    (folder / "copy").rename(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def damage_number(folder):
    text = (folder / "graph.json").read_text()
    meta = json.loads(text)
    old, new = (f'"max_in_degree": {meta["max_in_degree"] + add}' for add in (0, 1))
    assert old in text
    (folder / "graph.json").write_text(text.replace(old, new))


def damage_escape(folder):
    meta = json.loads((folder / "graph.json").read_text())
    meta["files"]["feat"]["file"] = "../feat.npy"
    (folder / "feat.npy").rename(folder.parent / "feat.npy")
    (folder / "graph.json").write_text(json.dumps(meta))


@pytest.mark.parametrize(
    "damage",
    [
        damage_cut, damage_flip, damage_swap, damage_json, damage_version, damage_missing, damage_escape,
        damage_middle, damage_middle_at_the_old_time, damage_number,
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:cached file")
def test_an_invalid_cache_is_refused_and_replaced(tmp_path, graph, damage):
    cache.store(tmp_path, "toy", "s", graph)
    damage(folder_of(tmp_path))
    assert cache.open_cached(tmp_path, "toy", "s") is None
    assert cache.cached(tmp_path, "toy", "s", lambda: graph).digest() == graph.digest()
    assert cache.open_cached(tmp_path, "toy", "s").digest() == graph.digest()


def test_damage_far_from_both_ends_is_said_and_the_graph_is_built_again(tmp_path):
    rng = np.random.default_rng(1)
    large = Graph.from_edges(*rng.integers(0, 30_000, (2, 600_000)), 30_000)
    cache.store(tmp_path, "toy", "s", large)
    assert (folder_of(tmp_path) / "indices.npy").stat().st_size > 1 << 21
    damage_middle(folder_of(tmp_path))
    with pytest.warns(UserWarning, match=r"cached file .*indices\.npy is damaged: the graph is built again"):
        g = cache.cached(tmp_path, "toy", "s", lambda: large)
    assert isinstance(g.indices, np.memmap) and g.digest() == large.digest()
    assert cache.open_cached(tmp_path, "toy", "s").digest() == large.digest()


def test_a_cache_is_read_whole_once_after_it_was_copied(tmp_path, graph, monkeypatch):
    cache.store(tmp_path, "toy", "s", graph)
    read = []
    original = cache._crc_of_file
    monkeypatch.setattr(cache, "_crc_of_file", lambda path: read.append(path.name) or original(path))
    cache.open_cached(tmp_path, "toy", "s")
    assert read == []
    shutil.copytree(tmp_path, tmp_path / "copy")
    for _ in range(2):
        cache._passed.clear()  # as another process
        assert cache.open_cached(tmp_path / "copy", "toy", "s").digest() == graph.digest()
        assert len(read) == len(list(folder_of(tmp_path).glob("*.npy")))
    # Where nothing can be written down, the process remembers.
    shutil.copytree(tmp_path / "copy", tmp_path / "other")
    monkeypatch.setattr(cache, "_note_identities", lambda target, meta: None)
    read.clear()
    for _ in range(2):
        assert cache.open_cached(tmp_path / "other", "toy", "s").digest() == graph.digest()
        assert len(read) == len(list(folder_of(tmp_path).glob("*.npy")))


def test_a_crash_while_writing_leaves_no_cache(tmp_path, graph, monkeypatch):
    calls = []
    original = cache.save_npy

    def fail_on_third(path, array):
        calls.append(path)
        if len(calls) == 3:
            raise KeyboardInterrupt
        original(path, array)

    monkeypatch.setattr(cache, "save_npy", fail_on_third)
    with pytest.raises(KeyboardInterrupt):
        cache.store(tmp_path, "toy", "s", graph)
    assert not folder_of(tmp_path).exists() and cache.open_cached(tmp_path, "toy", "s") is None
    assert list((tmp_path / roots.CACHE_FOLDER).iterdir()) == []


def test_a_full_disk_costs_the_cache_but_not_the_graph(tmp_path, graph, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "save_npy", full)
    assert cache.store(tmp_path, "toy", "s", graph) is graph
    monkeypatch.setattr(cache, "exclusive", full)  # not even a lock file
    assert cache.cached(tmp_path, "toy", "s", lambda: graph) is graph


def test_read_only_roots_are_cached_with_the_user(unwritable, tmp_path, graph, monkeypatch):
    stored = cache.store(unwritable, "toy", "s", graph)
    assert isinstance(stored.indices, np.memmap)
    assert cache.open_cached(unwritable, "toy", "s").digest() == graph.digest()
    assert cache.open_cached(unwritable / "other", "toy", "s") is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(unwritable))
    assert cache.store(unwritable, "toy", "s", graph) is graph  # nowhere to write: uncached


def test_arrays_written_in_slices_are_whole(tmp_path):
    array = np.arange(10_000_000, dtype=np.int64).reshape(-1, 2)  # 80 MB: above one slice
    cache.save_npy(tmp_path / "a.npy", array)
    assert np.array_equal(np.load(tmp_path / "a.npy"), array)


def test_writing_to_a_cached_graph_changes_no_file(tmp_path, graph):
    opened = cache.store(tmp_path, "toy", "s", graph)
    opened.indices[:] = 0
    opened.feat[:] = 0
    assert cache.open_cached(tmp_path, "toy", "s").digest() == graph.digest()


def test_an_array_is_read_again_when_another_thread_disturbed_its_parser(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.arange(5))
    load, failures = np.load, [SystemError("AST constructor recursion depth mismatch")] * 3

    def disturbed(*args, **options):
        if failures:
            raise failures.pop()
        return load(*args, **options)

    monkeypatch.setattr(np, "load", disturbed)
    mapped = cache.map_npy(tmp_path / "a.npy")
    assert isinstance(mapped, np.memmap) and mapped.tolist() == [0, 1, 2, 3, 4] and not failures

    failures += [SystemError("always")] * 99
    with pytest.raises(SystemError, match="always"):
        cache.map_npy(tmp_path / "a.npy")


def test_other_processes_map_only_what_the_files_hold(tmp_path, graph, monkeypatch):
    """A slice of a mapped array keeps its file's name, and what is written to a private map stays in this process."""
    opened = cache.store(tmp_path, "toy", "s", graph)
    assert cache.folder_of(opened) == folder_of(tmp_path)
    opened.feat.sum()
    assert cache.folder_of(opened) == folder_of(tmp_path), "reading changes nothing"
    assert cache.folder_of(graph) is None
    train, test = opened.splits["train"], opened.splits["test"]
    for changed in (
        {"splits": {"train": train[:5], "test": test}}, {"splits": {"train": train[1:], "test": test}},
        {"splits": {"valid": train, "test": test}}, {"splits": {"train": train}}, {"feat": opened.feat[:, :2]},
        {"feat": opened.feat[:, ::-1]}, {"label": None, "num_classes": 0}, {"edge_weight": None},
        {"label": np.array(opened.label)}, {"num_classes": 7}, {"name": "other"},
    ):  # fmt: skip
        assert cache.folder_of(replace(opened, **changed)) is None, changed
    opened.label[3] += 1
    assert cache.is_written(opened.label) and not cache.is_written(opened.feat)
    assert cache.folder_of(opened) is None
    again = cache.open_cached(tmp_path, "toy", "s")
    assert cache.folder_of(again) == folder_of(tmp_path)

    # Where the system does not say which pages were written, values are compared.
    monkeypatch.setattr(cache, "_MAPS", tmp_path / "nothing")
    assert cache.is_written(opened.label) and not cache.is_written(again.label)
    assert not cache.is_written(graph.label)


def test_only_half_written_folders_of_the_same_target_are_removed(tmp_path, graph):
    """A folder of the user's may have a name as ours have while they are written, or files of the user's."""
    root = tmp_path / roots.CACHE_FOLDER
    leftover = root / ".toy-s.abcd1234"
    others = [
        root / ".toy-t.abcd1234",
        root / ".my-notes.abcd1234",
        root / ".toy-s.abcd12345",
        root / ".toy-s.ABCD1234",
    ]
    for folder in (leftover, *others):
        folder.mkdir(parents=True)
        np.save(folder / "indptr.npy", np.arange(3))
    users = root / ".toy-s.efgh5678"
    users.mkdir()
    (users / "thesis.txt").write_text("mine")
    nested = root / ".toy-s.ijkl5678"
    (nested / "deeper").mkdir(parents=True)
    cache.store(tmp_path, "toy", "s", graph)
    assert not leftover.exists() and cache.open_cached(tmp_path, "toy", "s") is not None
    assert all(folder.exists() for folder in (*others, users / "thesis.txt", nested / "deeper"))


@pytest.mark.parametrize("contents", ["thesis.txt", "numbers.npy", "graph.json", "a file"])
def test_a_folder_of_the_users_is_never_replaced(tmp_path, graph, contents):
    target = tmp_path / "partition"
    if contents == "a file":
        kept = target
    else:
        target.mkdir()
        kept = target / contents
    kept.write_text('{"format": "of another program"}')
    with pytest.raises(
        FileExistsError, match=r"folder '.*partition' must be empty, missing or one that gnnsample_lab"
    ):
        cache.write(target, graph, "s")
    assert kept.read_text() == '{"format": "of another program"}'
    assert [path.name for path in tmp_path.iterdir()] == ["partition"]


def test_an_empty_folder_and_one_of_ours_are_replaced(tmp_path, graph):
    target = tmp_path / "partition"
    target.mkdir()
    for stamp in ("s", "t"):
        cache.write(target, graph, stamp)
        assert json.loads((target / "graph.json").read_text())["stamp"] == stamp
    assert [path.name for path in tmp_path.iterdir()] == ["partition"]


def test_splits_whose_names_are_alike_have_files_of_their_own(tmp_path, graph):
    names = ["valid/a", "valid_a", "valid a", "Valid_a", "valid_a.2"]
    given = replace(graph, splits={name: np.array([place]) for place, name in enumerate(names)})
    stored = cache.store(tmp_path, "toy", "s", given)
    assert isinstance(stored.indptr, np.memmap)
    assert {name: ids.tolist() for name, ids in stored.splits.items()} == {
        n: [i] for i, n in enumerate(names)
    }
    files = [
        entry["file"]
        for entry in json.loads((folder_of(tmp_path) / "graph.json").read_text())["files"].values()
    ]
    assert len({name.lower() for name in files}) == len(files)


@pytest.mark.filterwarnings("error")
def test_a_cache_that_has_one_file_for_two_splits_is_built_again(tmp_path, graph, monkeypatch):
    given = replace(graph, splits={"valid/a": np.array([1]), "valid_a": np.array([2])})
    with monkeypatch.context() as before:
        before.setattr(cache, "_file_name", lambda key, used: f"{cache._safe(key)}.npy")
        cache.store(tmp_path, "toy", "s", given)
    found = cache.cached(tmp_path, "toy", "s", lambda: given)
    assert isinstance(found.indptr, np.memmap)
    assert (found.splits["valid/a"].tolist(), found.splits["valid_a"].tolist()) == ([1], [2])
