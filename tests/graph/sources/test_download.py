"""Downloads against a server on loopback: completion, resuming, broken connections, bad archives."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import pathlib
import urllib.error
import zipfile

import pytest

from gnnsample_lab.graph import CorruptDataError, DownloadError, load
from gnnsample_lab.graph.sources import download
from gnnsample_lab.graph.sources import ogb as ogb_source

BODY = bytes(range(256)) * 4000


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_download_is_complete_and_leaves_nothing_else(server, tmp_path):
    url = server.add("/f.bin", BODY)
    path = download.download(url, tmp_path / "deep" / "f.bin", progress=False)
    assert path.read_bytes() == BODY and names(tmp_path / "deep") == ["f.bin"]


def test_a_broken_connection_is_continued_within_one_call(server, tmp_path):
    url = server.add("/f.bin", BODY, cut_after=[100_000, 200_000])
    assert download.download(url, tmp_path / "f.bin", progress=False).read_bytes() == BODY
    assert server.files["/f.bin"].ranges == [None, "bytes=100000-", "bytes=300000-"]


def test_a_download_that_failed_is_resumed_by_the_next_call(server, tmp_path):
    url = server.add("/f.bin", BODY, cut_after=[100_000] + [0] * (download.ATTEMPTS - 1))
    with pytest.raises(
        DownloadError, match="closed after 100,000 of 1,024,000 bytes; call again to continue"
    ):
        download.download(url, tmp_path / "f.bin", progress=False)
    assert names(tmp_path) == ["f.bin.part", "f.bin.part.json"]
    assert download.download(url, tmp_path / "f.bin", progress=False).read_bytes() == BODY
    assert server.files["/f.bin"].ranges[-1] == "bytes=100000-"
    assert names(tmp_path) == ["f.bin"]


@pytest.mark.parametrize("etag", ['"2"', None])
def test_a_file_that_changed_meanwhile_is_fetched_from_the_start(server, tmp_path, etag):
    url = server.add("/f.bin", b"x" * 50_000, cut_after=[10_000] + [0] * (download.ATTEMPTS - 1))
    with pytest.raises(DownloadError):
        download.download(url, tmp_path / "f.bin", progress=False)
    server.add("/f.bin", BODY, etag=etag)
    assert download.download(url, tmp_path / "f.bin", progress=False).read_bytes() == BODY


def test_without_a_validator_nothing_is_glued_together(server, tmp_path):
    url = server.add("/f.bin", BODY, etag=None, cut_after=[10_000])
    assert download.download(url, tmp_path / "f.bin", progress=False).read_bytes() == BODY
    assert server.files["/f.bin"].ranges == [None, None]


def test_a_partial_file_longer_than_the_file_is_dropped(server, tmp_path):
    url = server.add("/f.bin", BODY)
    (tmp_path / "f.bin.part").write_bytes(b"y" * (len(BODY) + 5))
    (tmp_path / "f.bin.part.json").write_text(f'{{"url": "{url}", "validator": "\\"1\\""}}')
    assert download.download(url, tmp_path / "f.bin", progress=False).read_bytes() == BODY


def test_checksums(server, tmp_path):
    url = server.add("/f.bin", BODY)
    right = hashlib.sha256(BODY).hexdigest()
    assert download.download(url, tmp_path / "f.bin", sha256=right, progress=False).exists()
    with pytest.raises(CorruptDataError, match="does not have the expected SHA-256"):
        download.download(url, tmp_path / "g.bin", sha256="0" * 64, progress=False)
    assert names(tmp_path) == ["f.bin"]
    with pytest.raises(CorruptDataError, match=r"f\.bin does not have the expected SHA-256"):
        download.download(url, tmp_path / "f.bin", sha256="0" * 64, progress=False)
    assert (tmp_path / "f.bin").read_bytes() == BODY  # it was there before


def test_failures_say_what_happened(server, tmp_path, unwritable):
    base = server.add("/f.bin", BODY)
    with pytest.raises(DownloadError, match="HTTP 404"):
        download.download(base + ".missing", tmp_path / "f.bin", progress=False)
    server.server.server_close()
    server.server.shutdown()
    with pytest.raises(DownloadError, match=r"downloading http.*f\.bin failed"):
        download.download(base, tmp_path / "f.bin", progress=False)
    with pytest.raises(PermissionError, match="cannot be written to, which downloading http"):
        download.download(base, unwritable / "f.bin", progress=False)


@pytest.mark.parametrize(
    "name", ["cora", "ogbn-arxiv", "snap:soc-Epinions1", "reddit", "flickr", "musae-git"]
)
def test_a_load_without_a_network_leaves_no_folders(tmp_path, monkeypatch, name):
    def unreachable(*arguments, **options):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    for kept in ("", "here"):
        root = tmp_path / kept / "root"
        (tmp_path / kept).mkdir(exist_ok=True)
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(DownloadError, match="no network"):
            load(name, root, progress=False)
        assert sorted(tmp_path.rglob("*")) == before
    (root / "mine").mkdir(parents=True)
    with pytest.raises(DownloadError, match="no network"):
        load(name, root, progress=False)
    assert names(root) == ["mine"], "what was there stays, though it is empty"


def test_what_a_broken_download_left_keeps_its_folder(server, tmp_path):
    url = server.add("/f.bin", BODY, cut_after=[100_000] + [0] * (download.ATTEMPTS - 1))
    with pytest.raises(DownloadError):
        download.download(url, tmp_path / "deep" / "f.bin", progress=False)
    assert names(tmp_path / "deep") == ["f.bin.part", "f.bin.part.json"]


def test_a_large_download_warns_and_a_too_large_one_is_refused(server, tmp_path, monkeypatch):
    url = server.add("/f.bin", BODY)
    monkeypatch.setattr(download, "WARN_BYTES", 1000)
    with pytest.warns(UserWarning, match=r"downloading 0\.0 GiB from http.*f\.bin to .*interrupt to stop"):
        download.download(url, tmp_path / "f.bin", progress=False)
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(download.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(OSError, match="GiB free, downloading"), pytest.warns(UserWarning):
        download.download(url, tmp_path / "g.bin", progress=False)


def test_progress_is_shown(server, tmp_path, capfd):
    url = server.add("/f.bin", BODY)
    download.download(url, tmp_path / "f.bin")
    assert "downloading f.bin: 100%" in capfd.readouterr().err


def test_an_archive_appears_whole_or_not_at_all(tmp_path, ogb_folders):
    ogb_folders.node_property(tmp_path / "made")
    data = ogb_folders.zipped(tmp_path / "made", "arxiv")
    archive = tmp_path / "arxiv.zip"
    archive.write_bytes(data)
    folder = download.unzip(archive, tmp_path / "ogbn_arxiv", "arxiv", progress=False)
    assert (folder / "raw" / "edge.csv.gz").is_file()
    for damaged in (data[: len(data) // 2], data[:40], data[:500] + bytes(200) + data[700:], b""):
        archive.write_bytes(damaged)
        with pytest.raises(CorruptDataError, match=r"arxiv\.zip is cut off or damaged"):
            download.unzip(archive, tmp_path / "bad", "arxiv", progress=False)
        assert not (tmp_path / "bad").exists() and not list(tmp_path.glob(".*unpacking"))


def test_archives_that_reach_outside_or_lack_their_folder_are_refused(tmp_path):
    for member, match in (("../evil.txt", "outside its folder"), ("other/x.txt", "has no folder 'arxiv'")):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(member, "x")
        (tmp_path / "a.zip").write_bytes(buffer.getvalue())
        with pytest.raises(CorruptDataError, match=match):
            download.unzip(tmp_path / "a.zip", tmp_path / "sub" / "out", "arxiv", progress=False)
    assert not (tmp_path / "evil.txt").exists() and not (tmp_path / "sub" / "evil.txt").exists()


@pytest.fixture
def arxiv_on_loopback(server, tmp_path, ogb_folders, monkeypatch):
    """ogbn-arxiv at an address of the server; returns what the data set holds."""
    held = ogb_folders.node_property(tmp_path / "made")
    url = server.add("/arxiv.zip", ogb_folders.zipped(tmp_path / "made", "arxiv"))
    table = dict(ogb_source.master())
    table["ogbn-arxiv"] = dataclasses.replace(table["ogbn-arxiv"], url=url)
    monkeypatch.setattr(ogb_source, "master", lambda: table)
    return held


def test_load_downloads_an_ogb_dataset_once(arxiv_on_loopback, server, tmp_path, ogb_folders, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *a: pytest.fail("a prompt"))
    root = tmp_path / "root"
    g = load("ogbn-arxiv", root, progress=False)
    assert g.num_nodes == 30 and g.splits["train"].tolist() == arxiv_on_loopback["train"].tolist()
    assert names(root / "ogb") == ["ogbn_arxiv"]  # the archive went, no partial files stayed
    assert load("ogbn-arxiv", root, download=False).digest() == g.digest()
    assert len(server.files["/arxiv.zip"].ranges) == 1


def test_load_resumes_and_survives_a_cut_off_archive(arxiv_on_loopback, server, tmp_path):
    root = tmp_path / "root"
    served = server.files["/arxiv.zip"]
    served.cut_after = [500] + [0] * (download.ATTEMPTS - 1)
    with pytest.raises(DownloadError, match="closed after 500 of"):
        load("ogbn-arxiv", root, progress=False)
    assert load("ogbn-arxiv", root, progress=False).num_nodes == 30
    assert served.ranges[-1] == "bytes=500-"


def test_an_archive_that_the_user_put_there_is_used_and_checked(arxiv_on_loopback, server, tmp_path):
    root = tmp_path / "root"
    (root / "ogb").mkdir(parents=True)
    body = server.files["/arxiv.zip"].body
    (root / "ogb" / "arxiv.zip").write_bytes(body[: len(body) // 2])
    with pytest.raises(
        CorruptDataError, match=r"arxiv\.zip is cut off or damaged .*remove it to download it again"
    ):
        load("ogbn-arxiv", root, progress=False)
    (root / "ogb" / "arxiv.zip").write_bytes(body)
    assert load("ogbn-arxiv", root, download=False, progress=False).num_nodes == 30
    assert (root / "ogb" / "arxiv.zip").exists() and server.files["/arxiv.zip"].ranges == []


def test_an_incomplete_folder_is_kept_aside_when_the_data_arrives(arxiv_on_loopback, tmp_path):
    folder = tmp_path / "root" / "ogb" / "ogbn_arxiv"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    assert load("ogbn-arxiv", tmp_path / "root", progress=False).num_nodes == 30
    assert (folder.parent / "ogbn_arxiv.incomplete" / "notes.txt").read_text() == "mine"


def test_an_unwritable_root_is_an_error_before_anything_is_fetched(arxiv_on_loopback, server, unwritable):
    with pytest.raises(PermissionError, match=r"root '.*' cannot be written to.*LAB_DATA_ROOT"):
        load("ogbn-arxiv", unwritable, progress=False)
    assert server.files["/arxiv.zip"].ranges == []


def _archive(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (_archive(**{"/etc/evil": b"x"}), r"member '/etc/evil' of archive .*a\.zip would be written outside"),
        (_archive(**{"arxiv/../../evil": b"x"}), "would be written outside"),
        (_archive(**{"arxiv/raw": b"x", "arxiv/raw/edge.csv.gz": b"x"}), "has the name of another one"),
        (_archive(**{"arxiv/raw/x": b"x", "arxiv/raw": b"x"}), "has the name of another one"),
        (_archive(**{"arxiv/" + "x" * 300: b"x"}), "could not be written: File name too long"),
    ],
)
def test_archives_whose_members_cannot_be_are_refused(tmp_path, data, match):
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises((CorruptDataError, DownloadError), match=match):
        download.unzip(tmp_path / "a.zip", tmp_path / "out", "arxiv", progress=False)
    assert names(tmp_path) == ["a.zip"]


def test_encrypted_archives_and_a_full_disk_are_told_from_damage(tmp_path, monkeypatch):
    data = bytearray(_archive(**{"arxiv/raw/edge.csv.gz": b"x"}))
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + at] |= 1  # says that the member is encrypted
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(CorruptDataError, match=r"a\.zip cannot be read as an archive .*encrypted"):
        download.unzip(tmp_path / "a.zip", tmp_path / "out", "arxiv", progress=False)
    (tmp_path / "a.zip").write_bytes(_archive(**{"arxiv/raw/edge.csv.gz": b"x"}))

    mkdir = pathlib.Path.mkdir

    def full(path, *arguments, **options):
        if path.name == "raw":
            raise OSError(28, "No space left on device")
        mkdir(path, *arguments, **options)

    monkeypatch.setattr("pathlib.Path.mkdir", full)
    with pytest.raises(DownloadError, match=r"a\.zip could not be written: No space left on device"):
        download.unzip(tmp_path / "a.zip", tmp_path / "out", "arxiv", progress=False)
