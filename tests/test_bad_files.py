"""Every file format that the package reads, damaged in every way: the right contents, or an error that names the file.

Never a wrong result, and never an error of NumPy, pandas, JSON, gzip, zipfile or the system as it is.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import importlib.util
import io
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnsample_lab import files
from gnnsample_lab.bench import report
from gnnsample_lab.gpu_model import model as gpu_model
from gnnsample_lab.graph import (
    CorruptDataError,
    DatasetNotFoundError,
    Graph,
    UnknownDatasetError,
    cache,
    catalogue,
    load,
    roots,
)
from gnnsample_lab.graph.sources import download
from gnnsample_lab.resources import resource_path
from gnnsample_lab.traces import SampleTrace
from tests.handmade_trace import make_trace

TYPED = {
    ValueError, TypeError, LookupError, FileNotFoundError, CorruptDataError, DatasetNotFoundError, UnknownDatasetError,
}  # fmt: skip
"""Exactly these: a JSONDecodeError is a ValueError, and yet no error of ours."""


def _module(name: str) -> Any:
    path = Path(__file__).parent / "graph" / "sources" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ogb_folders, test_npz = _module("ogb_folders"), _module("test_npz")
planetoid_files, musae_files = _module("planetoid_files"), _module("musae_files")


@dataclasses.dataclass(frozen=True)
class Format:
    """One kind of input: how to write a good one, how to read it, and which files it is made of."""

    write: Callable[[Path], Any]
    read: Callable[[Path], Any]
    """What was read, as something that can be compared."""
    files: tuple[str, ...]
    checked: bool = True
    """Compressed, with a checksum: a changed byte is noticed or does not matter. Plain text has none."""


def _graph(name: str, **options: Any) -> Callable[[Path], str]:
    return lambda root: load(name, root, download=False, use_cache=False, **options).digest()


def _write_saint(root: Path) -> None:
    test_npz.write_graphsaint(root / "flickr", {str(v): v % 2 for v in range(4)})


def _read_musae_archive(root: Path) -> str:
    try:
        return _graph("musae-git")(root)
    finally:
        shutil.rmtree(root / "musae-git", ignore_errors=True)


def _write_collab(root: Path) -> None:
    ogb_folders.node_property(root / "ogbl_collab")
    ogb_folders.write_csv(root / "ogbl_collab" / "raw" / "edge_weight.csv.gz", np.arange(80) + 1)


def _write_snap(root: Path, name: str) -> None:
    text = "# a comment\n" + "".join(
        f"{u}\t{v}\n" for u, v in np.random.default_rng(0).integers(0, 40, (90, 2))
    )
    (root / name).write_bytes(gzip.compress(text.encode(), mtime=0) if name.endswith("gz") else text.encode())


def _toy() -> Graph:
    rng = np.random.default_rng(0)
    return Graph.from_edges(
        rng.integers(0, 50, 400), rng.integers(0, 50, 400), 50, edge_weight=rng.random(400),
        feat=rng.random((50, 4)), label=rng.integers(0, 3, 50), splits={"train": np.arange(9)}, name="toy",
    )  # fmt: skip


def _read_cached(root: Path) -> str:
    cache._passed.clear()
    return cache.cached(root, "toy", "s", _toy).digest()


def _read_trace(root: Path) -> bytes:
    return SampleTrace.load(root / "t.npz").save(root.parent / "again.npz").read_bytes()


def _write_archive(root: Path) -> None:
    ogb_folders.node_property(root.parent / "made")
    (root / "arxiv.zip").write_bytes(ogb_folders.zipped(root.parent / "made", "arxiv"))


def _unpack(root: Path) -> dict[str, bytes]:
    folder = root.parent / "unpacked"
    try:
        download.unzip(root / "arxiv.zip", folder, "arxiv", progress=False)
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    finally:
        assert not [p for p in root.parent.iterdir() if p.name.startswith(".")]


def _read_presets(root: Path) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_model, "PRESETS_FILE", root / "presets.json")
        return {key: one.to_json() for key, one in gpu_model.presets().items()}


def _read_catalogue(root: Path) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "_path", lambda: root / "catalogue.json")
        return catalogue.entries.__wrapped__()


CACHED = f"{roots.CACHE_FOLDER}/toy-s"
FORMATS = {
    "ogb-csv": Format(
        lambda root: ogb_folders.node_property(root / "ogbn_arxiv"), _graph("ogbn-arxiv"),
        (
            *(f"ogbn_arxiv/raw/{n}.csv.gz" for n in (
                "edge", "num-node-list", "num-edge-list", "node-feat", "node-label")),
            "ogbn_arxiv/split/time/valid.csv.gz",
        ),
    ),
    "ogb-weights": Format(_write_collab, _graph("ogbl-collab"), ("ogbl_collab/raw/edge_weight.csv.gz",)),
    "ogb-binary": Format(
        lambda root: ogb_folders.binary(root / "ogbn_papers100M"), _graph("ogbn-papers100M"),
        ("ogbn_papers100M/raw/data.npz", "ogbn_papers100M/raw/node-label.npz"),
    ),
    "snap-gz": Format(lambda root: _write_snap(root, "toy.txt.gz"), _graph("snap:toy"), ("toy.txt.gz",)),
    "snap-txt": Format(lambda root: _write_snap(root, "toy.txt"), _graph("snap:toy"), ("toy.txt",), checked=False),
    "reddit": Format(
        lambda root: test_npz.write_reddit(root / "reddit"), _graph("reddit"),
        ("reddit/reddit_graph.npz", "reddit/reddit_data.npz"),
    ),
    "graphsaint": Format(_write_saint, _graph("flickr"), ("flickr/adj_full.npz",)),
    "graphsaint-plain": Format(
        _write_saint, _graph("flickr"), ("flickr/feats.npy", "flickr/class_map.json", "flickr/role.json"), checked=False
    ),
    "coauthor": Format(
        lambda root: test_npz.write_coauthor(root / "physics" / "ms_academic_phy.npz"), _graph("physics"),
        ("physics/ms_academic_phy.npz",),
    ),
    "planetoid": Format(
        lambda root: planetoid_files.write(root / "cora", "cora"), _graph("cora"),
        tuple(f"cora/ind.cora.{part}" for part in ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")),
        checked=False,
    ),
    "musae": Format(
        lambda root: musae_files.write_plain(root / "musae-facebook", "facebook"), _graph("musae-facebook"),
        tuple(f"musae-facebook/{name}.gz" for name in ("edges.csv", "target.csv", "features.json")),
    ),
    "musae-plain": Format(
        lambda root: musae_files.write_plain(root / "musae-twitch-de", "DE", packed=False),
        _graph("musae-twitch-de", features="raw"),
        tuple(f"musae-twitch-de/{name}" for name in ("edges.csv", "target.csv", "features.json")), checked=False,
    ),
    "musae-archive": Format(
        lambda root: (root / "git_web_ml.zip").write_bytes(musae_files.archive("git")), _read_musae_archive,
        ("git_web_ml.zip",),
    ),
    "trace": Format(lambda root: make_trace().save(root / "t.npz"), _read_trace, ("t.npz",)),
    "record": Format(
        lambda root: shutil.copy(resource_path("data/measured/cpu.json"), root / "cpu.json"), report.load,
        ("cpu.json",), checked=False,
    ),
    "presets": Format(
        lambda root: shutil.copy(gpu_model.PRESETS_FILE, root / "presets.json"), _read_presets, ("presets.json",),
        checked=False,
    ),
    "catalogue": Format(
        lambda root: shutil.copy(catalogue._path(), root / "catalogue.json"), _read_catalogue, ("catalogue.json",),
        checked=False,
    ),
    "cache": Format(
        lambda root: cache.store(root, "toy", "s", _toy()), _read_cached,
        tuple(f"{CACHED}/{n}" for n in ("graph.json", "indptr.npy", "indices.npy", "feat.npy", "split_train.npy")),
    ),
    "archive": Format(_write_archive, _unpack, ("arxiv.zip",)),
}  # fmt: skip


def _replaced(make: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(make(path.read_bytes())) and None


def _flipped(share: float) -> Callable[[Path], None]:
    def flip(data: bytes) -> bytes:
        at = int(share * len(data))
        return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]

    return _replaced(flip)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _looping_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


NOISE = np.random.default_rng(5).integers(0, 256, 3000, dtype=np.uint8).tobytes()
REPLACED: dict[str, Callable[[Path], None]] = {
    "empty": _replaced(lambda data: b""),
    "one byte": _replaced(lambda data: data[:1]),
    "noise": _replaced(lambda data: NOISE),
    "zeros": _replaced(lambda data: bytes(len(data))),
    "a web page": _replaced(lambda data: b"<!DOCTYPE html>\n<html><body>404, not found</body></html>\n"),
    "text": _replaced(lambda data: "größer als 1.5, kleiner als \u221e\n".encode()),
    "latin-1": _replaced(lambda data: "größer\n".encode("latin-1")),
    "utf-16": _replaced(lambda data: "1,2\n".encode("utf-16")),
    "a pickle": _replaced(lambda data: pickle.dumps({"feature": np.arange(3)})),
    "gzip of noise": _replaced(lambda data: gzip.compress(NOISE)),
    "gzip of nothing": _replaced(lambda data: gzip.compress(b"")),
    "gzip of text": _replaced(lambda data: gzip.compress(b"one,two\nthree\n")),
    "another npz": _replaced(lambda data: _npz(other=np.arange(3))),
    "an npy": _replaced(lambda data: _npz(other=np.arange(3))[30:]),
    "JSON null": _replaced(lambda data: b"null"),
    "JSON list": _replaced(lambda data: b"[1, 2, 3]"),
    "JSON of another kind": _replaced(
        lambda data: b'{"suite": "cpu", "datasets": 3, "models": [], "shared": 1}'
    ),
    "JSON nested deeply": _replaced(lambda data: b"[" * 100_000),
    "a folder": _folder,
    "a link to itself": _looping_link,
    "missing": lambda path: path.unlink(),
}
CHANGED: dict[str, Callable[[Path], None]] = {
    **{f"cut at {share}": _replaced(lambda data, share=share: data[: int(share * len(data))])
       for share in (0.1, 0.5, 0.9)},
    "cut by a byte": _replaced(lambda data: data[:-1]),
    **{f"flipped at {share}": _flipped(share) for share in (0.02, 0.3, 0.45, 0.6, 0.8, 0.97)},
    "noise behind": _replaced(lambda data: data + NOISE),
    "noise before": _replaced(lambda data: NOISE[:100] + data),
    "twice": _replaced(lambda data: data + data),
    "zeros in the middle": _replaced(lambda data: data[: len(data) // 3] + bytes(9) + data[len(data) // 3 + 9 :]),
    "CRLF": _replaced(lambda data: data.replace(b"\n", b"\r\n")),
    "byte order mark": _replaced(lambda data: b"\xef\xbb\xbf" + data),
}  # fmt: skip
FILES = [(kind, file) for kind, form in FORMATS.items() for file in form.files]


def outcome(form: Format, root: Path, file: str) -> Any:
    """What was read; or the error, once it is sure that it is a typed one that names the file."""
    try:
        return form.read(root)
    except Exception as error:
        assert type(error) in TYPED, f"{type(error).__module__}.{type(error).__name__}: {error}"
        # Where the file is gone that makes a folder a data set, the data set is not found.
        gone = isinstance(error, DatasetNotFoundError) and str(root) in str(error)
        assert gone or Path(file).name in str(error), str(error)
        assert "\n" not in str(error)
        return error


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.mktemp("home")
    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(variable, str(home))
    monkeypatch.delenv("LAB_DATA_ROOT", raising=False)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Any]]:
    """Each kind of input, written once, and what is read from it."""

    @functools.cache
    def template(kind: str) -> tuple[Path, Any]:
        root = tmp_path_factory.mktemp("good") / "root"
        root.mkdir()
        FORMATS[kind].write(root)
        return root, FORMATS[kind].read(root)

    return template


@pytest.fixture
def copied(templates: Callable[[str], tuple[Path, Any]], tmp_path: Path) -> Callable[[str], tuple[Path, Any]]:
    def copy(kind: str) -> tuple[Path, Any]:
        root, good = templates(kind)
        return Path(shutil.copytree(root, tmp_path / "root")), good

    return copy


each_file = pytest.mark.parametrize(("kind", "file"), FILES, ids=[f"{k}-{Path(f).name}" for k, f in FILES])
pytestmark = pytest.mark.filterwarnings("ignore:cached file")


@each_file
@pytest.mark.parametrize("damage", REPLACED)
def test_files_that_are_something_else(kind, file, damage, copied):
    root, good = copied(kind)
    REPLACED[damage](root / file)
    found = outcome(FORMATS[kind], root, file)
    if kind == "cache":
        assert found == good, "a damaged cache is built again"
    elif kind == "record" and damage in ("missing", "JSON null", "JSON list"):
        assert found == {}, "other JSON files in the folder are no records"
    else:
        assert isinstance(found, Exception), f"{damage} was read"


@each_file
@pytest.mark.parametrize("damage", CHANGED)
def test_files_that_were_changed(kind, file, damage, copied):
    root, good = copied(kind)
    CHANGED[damage](root / file)
    found = outcome(FORMATS[kind], root, file)
    if kind == "cache" or (damage in ("CRLF", "byte order mark") and file.endswith((".txt", ".json"))):
        assert found == good
    elif FORMATS[kind].checked or (damage.startswith("cut") and not file.endswith(".txt")):
        assert isinstance(found, Exception) or found == good, "a wrong result"


@each_file
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_files_that_may_not_be_read(kind, file, copied):
    root, good = copied(kind)
    (root / file).chmod(0)
    found = outcome(FORMATS[kind], root, file)
    assert isinstance(found, Exception) or (kind == "cache" and found == good)


def test_scratch_folders_of_killed_processes_are_removed_by_the_next(tmp_path):
    """Those of other processes that run, of other kinds and of other hosts stay."""
    script = (
        "import os, sys; from gnnsample_lab.files import scratch_folder\n"
        f"with scratch_folder('lab-train', {str(tmp_path)!r}) as folder:\n"
        "    (folder / 'large').write_bytes(bytes(10)); print(folder, flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killed,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running,
    ):
        left, kept = (Path(each.stdout.readline().strip()) for each in (killed, running))
        killed.kill()
        killed.wait()
        others = [
            tmp_path / name
            for name in ("lab-train-elsewhere-1-x", left.name.replace("train", "parts"), "lab-train")
        ]
        for other in others:
            other.mkdir()
        # A process of another container, whose host has the same name and has no process of this number here.
        space = re.sub(r"pid_(?P<number>\d+)", "pid_1", left.name)
        assert space != left.name or not Path("/proc/self/ns/pid").is_symlink()
        if space != left.name:
            others.append(tmp_path / space)
            others[-1].mkdir()
        assert left.exists() and kept.exists()
        with files.scratch_folder("lab-train", tmp_path) as own:
            assert own.is_dir() and kept.exists() and not left.exists()
            assert all(other.exists() for other in others)
        assert not own.exists()
        running.stdin.close()
        assert running.wait() == 0 and not kept.exists()
