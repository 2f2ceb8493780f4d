"""Which folder is the data root, and where our own files go."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnsample_lab.graph import roots


def test_argument_then_variable_then_checkout_then_user(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_DATA_ROOT", str(tmp_path / "variable"))
    assert roots.data_root(tmp_path / "argument") == tmp_path / "argument"
    assert roots.data_root() == tmp_path / "variable"
    monkeypatch.delenv("LAB_DATA_ROOT")
    monkeypatch.setattr(roots, "checkout", lambda: Path("/checkout"))
    assert roots.data_root() == Path("/checkout/data")
    monkeypatch.setattr(roots, "checkout", lambda: None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    assert roots.data_root() == tmp_path / "share" / "gnnsample_lab"
    assert not roots.data_root().is_relative_to(Path.cwd() / "data")


def test_an_empty_variable_counts_as_unset(monkeypatch):
    monkeypatch.setenv("LAB_DATA_ROOT", "")
    monkeypatch.setattr(roots, "checkout", lambda: Path("/checkout"))
    assert roots.data_root() == Path("/checkout/data")


def test_a_root_that_is_no_path_is_an_error():
    with pytest.raises(TypeError, match=r"root must be a path .got 3"):
        roots.data_root(3)


def test_cache_lies_in_a_writable_root_and_else_with_the_user(tmp_path, unwritable, monkeypatch):
    assert roots.cache_folder(tmp_path) == tmp_path / roots.CACHE_FOLDER
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = roots.cache_folder(unwritable)
    assert folder is not None and folder.is_relative_to(tmp_path / "cache")
    assert folder != roots.cache_folder(unwritable / "other")
    assert folder in roots.cache_candidates(unwritable)
    monkeypatch.setenv("XDG_CACHE_HOME", str(unwritable))
    assert roots.cache_folder(unwritable) is None


def test_folders_of_a_failure_go_where_they_are_empty_and_new(tmp_path):
    (tmp_path / "old").mkdir()
    for folder, left in (
        ("old/a/b", ["old"]),
        ("old", ["old"]),
        ("new/a/b", ["old"]),
        ("never/made", ["old"]),
    ):
        with pytest.raises(KeyboardInterrupt), roots.without_empty_folders(tmp_path / folder):
            if not folder.startswith("never"):
                (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            raise KeyboardInterrupt
        assert [p.name for p in tmp_path.iterdir()] == left and not list((tmp_path / "old").iterdir())
    with pytest.raises(KeyboardInterrupt), roots.without_empty_folders(tmp_path / "new/a/b"):
        (tmp_path / "new/a/b").mkdir(parents=True)
        (tmp_path / "new/a/file").touch()
        raise KeyboardInterrupt
    assert sorted(p.name for p in (tmp_path / "new" / "a").iterdir()) == ["file"]
    with roots.without_empty_folders(tmp_path / "fine"):
        (tmp_path / "fine").mkdir()
    assert (tmp_path / "fine").is_dir()


def test_an_unwritable_root_is_named_with_the_way_out(unwritable):
    with pytest.raises(PermissionError, match=r"root '.*a-file.root' cannot be written to.*LAB_DATA_ROOT"):
        roots.require_writable(unwritable, "downloading")
