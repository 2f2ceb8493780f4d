"""Several processes that want the same file, folder or cached graph at once, and what killed ones leave."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gnnsample_lab.graph import Graph, cache, load, roots
from gnnsample_lab.graph.sources import download, locks

BODY = bytes(range(256)) * 4000
DOWNLOAD = """
import sys
from pathlib import Path
from gnnsample_lab.graph.sources import download
download.download(sys.argv[1], Path(sys.argv[2]), progress=False)
"""
# ogbn-arxiv at an address of the test's server.
LOAD = """
import dataclasses, sys
from gnnsample_lab.graph import load
from gnnsample_lab.graph.sources import ogb as ogb_source
table = dict(ogb_source.master())
table["ogbn-arxiv"] = dataclasses.replace(table["ogbn-arxiv"], url=sys.argv[1])
ogb_source.master = lambda: table
print(load("ogbn-arxiv", sys.argv[2], progress=False).digest())
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the other process did not come so far"
        time.sleep(0.005)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_two_processes_download_one_file_once(server, tmp_path):
    url = server.add("/f.bin", BODY, pause_s=0.1)
    first = start(DOWNLOAD, url, tmp_path / "f.bin")
    wait_until(lambda: (tmp_path / "f.bin.part").exists())
    others = [start(DOWNLOAD, url, tmp_path / "f.bin") for _ in range(2)]
    for process in (first, *others):
        finish(process)
    assert (tmp_path / "f.bin").read_bytes() == BODY and names(tmp_path) == ["f.bin"]
    assert server.files["/f.bin"].ranges == [None]


def test_two_processes_load_one_dataset(server, tmp_path, ogb_folders):
    ogb_folders.node_property(tmp_path / "made")
    body = ogb_folders.zipped(tmp_path / "made", "arxiv")
    url = server.add("/arxiv.zip", body, pause_s=0.15)
    root = tmp_path / "root"
    digests = {finish(process) for process in [start(LOAD, url, root) for _ in range(3)]}
    assert len(digests) == 1 and server.files["/arxiv.zip"].ranges == [None]
    assert names(root / "ogb") == ["ogbn_arxiv"] and len(names(root / roots.CACHE_FOLDER)) == 1


def test_a_killed_download_is_continued_and_nothing_of_it_stays(server, tmp_path):
    body = BODY * 5
    url = server.add("/f.bin", body, pause_s=0.1)
    part = tmp_path / "f.bin.part"
    killed = start(DOWNLOAD, url, tmp_path / "f.bin")
    wait_until(lambda: part.exists() and part.stat().st_size > 0)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    server.files["/f.bin"].pause_s = 0.0
    finish(start(DOWNLOAD, url, tmp_path / "f.bin"))
    assert (tmp_path / "f.bin").read_bytes() == body and names(tmp_path) == ["f.bin"]
    assert server.files["/f.bin"].ranges[-1].startswith("bytes=")


def test_a_killed_unpacking_is_cleaned_up_and_the_users_files_are_not(tmp_path, ogb_folders):
    ogb_folders.node_property(tmp_path / "made")
    archive = tmp_path / "arxiv.zip"
    archive.write_bytes(ogb_folders.zipped(tmp_path / "made", "arxiv"))
    folder = tmp_path / "root" / "ogbn_arxiv"
    code = """
import sys, time
from pathlib import Path
from gnnsample_lab.graph.sources import download
original = download._extract
def slow(*arguments):
    original(*arguments)
    time.sleep(60)
download._extract = slow
download.unzip(Path(sys.argv[1]), Path(sys.argv[2]), "arxiv", progress=False)
"""
    folder.parent.mkdir()
    killed = start(code, archive, folder)
    wait_until(lambda: [p for p in folder.parent.glob(".ogbn_arxiv.*/**/*") if p.is_dir()])
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (folder.parent / ".ogbn_arxiv.4711.unpacking").mkdir()  # as an earlier version named them
    mine = [".ogbn_arxiv.notes", ".ogbn_products.1.unpacking", "ogbn_arxiv.unpacking"]
    for name in mine:
        (folder.parent / name).mkdir()
    download.unzip(archive, folder, "arxiv", progress=False)
    assert names(folder.parent) == sorted([*mine, "ogbn_arxiv"])


def test_an_incomplete_folder_of_the_user_is_never_deleted(tmp_path, ogb_folders):
    ogb_folders.node_property(tmp_path / "made")
    archive = tmp_path / "arxiv.zip"
    archive.write_bytes(ogb_folders.zipped(tmp_path / "made", "arxiv"))
    folder = tmp_path / "ogbn_arxiv"
    for text in ("first", "second", "third"):
        if folder.exists():
            for path in sorted(folder.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
        folder.mkdir(exist_ok=True)
        (folder / "notes.txt").write_text(text)
        download.unzip(archive, folder, "arxiv", progress=False)
    kept = [tmp_path / f"ogbn_arxiv.incomplete{n}" / "notes.txt" for n in ("", "-2", "-3")]
    assert [path.read_text() for path in kept] == ["first", "second", "third"]


def test_an_archive_of_ours_that_a_killed_run_left_is_used_and_removed(
    server, tmp_path, ogb_folders, monkeypatch
):
    import dataclasses

    from gnnsample_lab.graph.sources import ogb as ogb_source

    ogb_folders.node_property(tmp_path / "made")
    body = ogb_folders.zipped(tmp_path / "made", "arxiv")
    url = server.add("/arxiv.zip", body)
    table = dict(ogb_source.master())
    table["ogbn-arxiv"] = dataclasses.replace(table["ogbn-arxiv"], url=url)
    monkeypatch.setattr(ogb_source, "master", lambda: table)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):

        def interrupt(*arguments, **options):
            raise KeyboardInterrupt

        patch.setattr(download, "_unpack", interrupt)
        load("ogbn-arxiv", tmp_path / "root", progress=False)
    assert names(tmp_path / "root" / "ogb") == ["arxiv.zip.downloaded"]
    assert load("ogbn-arxiv", tmp_path / "root", progress=False).num_nodes == 30
    assert names(tmp_path / "root" / "ogb") == ["ogbn_arxiv"]
    assert server.files["/arxiv.zip"].ranges == [None]
    # One that turns out damaged is ours to remove.
    served = server.files["/arxiv.zip"]
    served.body = body[: len(body) // 2]
    with pytest.raises(ValueError, match=r"arxiv\.zip\.downloaded is cut off or damaged .* it was removed"):
        load("ogbn-arxiv", tmp_path / "again", progress=False)
    assert not (tmp_path / "again").exists(), "folders that are empty go, too"


def test_a_failure_leaves_the_folder_that_another_process_works_in(server, tmp_path):
    good = server.add("/f.bin", BODY, pause_s=0.1)
    root = tmp_path / "root" / "deep"
    with pytest.raises(ZeroDivisionError), roots.without_empty_folders(root):
        busy = start(DOWNLOAD, good, root / "f.bin")
        wait_until(lambda: (root / "f.bin.part").exists())
        raise ZeroDivisionError
    finish(busy)
    assert (root / "f.bin").read_bytes() == BODY


def test_a_folder_that_another_process_removes_at_once_is_made_again(tmp_path, monkeypatch):
    folder = tmp_path / "root" / "deep"
    mkdir, left = Path.mkdir, [2]

    def removed(path: Path, *arguments: object, **options: object) -> None:
        mkdir(path, *arguments, **options)  # type: ignore[arg-type]
        if path == folder and left[0]:
            left[0] -= 1
            folder.rmdir()

    monkeypatch.setattr(Path, "mkdir", removed)
    assert roots.is_writable(folder) and left == [0] and names(folder) == []


def small_graph() -> Graph:
    rng = np.random.default_rng(0)
    return Graph.from_edges(rng.integers(0, 50, 400), rng.integers(0, 50, 400), 50, name="toy")


def test_what_killed_runs_left_of_a_graph_is_removed_when_it_is_made_again(tmp_path):
    folder = tmp_path / roots.CACHE_FOLDER
    code = """
import sys, time
from pathlib import Path
from gnnsample_lab.graph import Graph, cache
cache.save_npy = lambda path, array: time.sleep(60)
graph = Graph.from_edges([0], [1])
cache.cached(Path(sys.argv[1]), "toy", "killed", lambda: graph)
"""
    killed, busy = (start(code.replace("killed", stamp), tmp_path) for stamp in ("killed", "busy"))
    wait_until(lambda: list(folder.glob(".toy-killed.????????")) and list(folder.glob(".toy-busy.????????")))
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    try:
        cache.cached(tmp_path, "toy", "killed", small_graph)
        left = [name for name in names(folder) if not name.endswith(".lock")]
        assert len(left) == 2 and left[0].startswith(".toy-busy.") and left[1] == "toy-killed"
    finally:
        busy.kill()
        busy.communicate()


def test_two_processes_build_one_cached_graph_once(tmp_path):
    code = """
import sys, time
from pathlib import Path
from gnnsample_lab.graph import Graph, cache
def build():
    print("built")
    time.sleep(1)
    return Graph.from_edges([0, 1], [1, 0])
print(cache.cached(Path(sys.argv[1]), "toy", "s", build).digest())
"""
    lines = "".join(finish(process) for process in [start(code, tmp_path) for _ in range(3)]).split()
    assert lines.count("built") == 1 and len(set(lines)) == 2


def test_a_lock_is_freed_by_its_holders_death_and_leaves_no_file(tmp_path, recwarn):
    code = """
import sys, time
from pathlib import Path
from gnnsample_lab.graph.sources import locks
with locks.exclusive(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""
    target = tmp_path / "target"
    holder = start(code, target)
    assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
    with pytest.raises(locks.Busy), locks.exclusive(target, wait=False):
        pytest.fail("two have the lock")
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with locks.exclusive(target, wait=False), locks.exclusive(target):
        assert names(tmp_path) == [".target.lock"]
    assert names(tmp_path) == [] and not recwarn.list


def test_waiting_for_long_says_what_for(tmp_path, monkeypatch):
    import threading

    monkeypatch.setattr(locks, "QUIET_S", 0.05)
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with locks.exclusive(tmp_path / "target"):
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(30)
    threading.Timer(0.3, leave.set).start()
    with (
        pytest.warns(UserWarning, match="waiting for another process that works on .*target"),
        locks.exclusive(tmp_path / "target"),
    ):
        assert leave.is_set()
    thread.join()


def test_without_lock_service_the_file_is_the_lock(tmp_path, monkeypatch):
    def refuse(self: object, *arguments: object, **options: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(locks.FileLock, "acquire", refuse)
    with locks.exclusive(tmp_path / "target"):
        assert names(tmp_path) == [".target.lock"]
    assert names(tmp_path) == []


def test_an_archive_larger_than_the_disk_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("arxiv/raw/edge.csv.gz", bytes(1 << 20))
    monkeypatch.setattr(download.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 1000}))
    with pytest.raises(OSError, match=r"has 0\.0 GiB free, unpacking .*a\.zip needs 0\.0 GiB"):
        download.unzip(tmp_path / "a.zip", tmp_path / "out", "arxiv", progress=False)
    assert names(tmp_path) == ["a.zip"]
