"""Compiled functions on disk: found by the content of their sources, never in the way of a computation."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gnnsample_lab.device import jit_cache
from gnnsample_lab.device.jit import njit

PACKAGE = Path(jit_cache.__file__).parents[1]
DRAW = """
import numpy as np
from gnnsample_lab.sampling.neighbors import cpu
out = np.zeros(6, np.int64)
cpu._replace(out, 6, 1000, np.int64(3), np.uint64(0), np.uint64(0), np.uint64(7))
print(out.tolist(), cpu._replace.stats.cache_hits)
"""


def triple(x: Any) -> Any:
    return 3 * x


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of its own that takes the functions of this file."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(jit_cache, "content_key", lambda file: "0" * 64)
    monkeypatch.setattr(jit_cache, "_said", False)
    jit_cache._use.cache_clear()
    return tmp_path


def files(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


def hits(function: Any) -> int:
    return sum(function.stats.cache_hits.values())


def copied(tmp_path: Path) -> Path:
    """A copy of the package in a folder that Python can import from."""
    shutil.copytree(PACKAGE, tmp_path / "gnnsample_lab", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(root: Path, code: str, **variables: str) -> str:
    """Output of ``code`` in a process of its own, with the package under ``root``."""
    ours = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "PYTHONDONTWRITEBYTECODE")
    environment = {k: v for k, v in os.environ.items() if k not in ours}
    environment |= {"PYTHONPATH": str(root), **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def rewrite(file: Path, text: str) -> None:
    """Edits are seconds apart: a file of the same size and second is the one that Python has compiled."""
    last = file.stat().st_mtime
    file.write_text(text)
    os.utime(file, (last + 10, last + 10))


def test_a_compiled_function_is_found_again(cache: Path) -> None:
    first, second = njit(cache=True)(triple), njit(cache=True)(triple)
    assert (first(5), first(0.5)) == (15, 1.5)
    assert len(files(cache)) == 2
    assert (second(5), second(0.5)) == (15, 1.5)
    assert (hits(first), hits(second)) == (0, 2)


def test_options_make_another_function(cache: Path) -> None:
    njit(cache=True)(triple)(5)
    other = njit(cache=True, error_model="numpy")(triple)
    assert other(5) == 15 and hits(other) == 0


def test_without_cache_nothing_is_written(cache: Path) -> None:
    assert njit(triple)(5) == 15
    assert not files(cache)


def test_a_function_with_captured_values_is_not_kept(cache: Path) -> None:
    made = [njit(cache=True)(eval(f"(lambda n: lambda x: n * x)({n})")) for n in (2, 3)]
    assert [function(5) for function in made] == [10, 15]
    assert not files(cache)


@pytest.mark.parametrize("damage", ["cut", "empty", "garbage", "one bit", "a folder"])
def test_a_damaged_file_costs_a_compilation_and_one_warning(cache: Path, damage: str) -> None:
    njit(cache=True)(triple)(5)
    (path,) = files(cache)
    data = path.read_bytes()
    if damage == "a folder":
        path.unlink()
        path.mkdir()
    else:
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        path.write_bytes(
            {"cut": data[:-7], "empty": b"", "garbage": os.urandom(900), "one bit": flipped}[damage]
        )
    again = njit(cache=True)(triple)
    with pytest.warns(RuntimeWarning, match="gnnsample_lab: ") as said:
        assert again(5) == 15
    assert len(said) == 1 and hits(again) == 0
    if damage != "a folder":
        third = njit(cache=True)(triple)
        assert third(5) == 15 and hits(third) == 1, "the damaged file was not replaced"


def test_a_file_that_holds_another_function_is_not_used(cache: Path) -> None:
    njit(cache=True)(triple)(5)
    (whole,) = files(cache)
    njit(cache=True)(triple)(0.5)
    (real,) = set(files(cache)) - {whole}
    shutil.copyfile(real, whole)
    again = njit(cache=True)(triple)
    assert again(5) == 15 and hits(again) == 0


def test_a_full_disk_costs_compilations_and_one_warning(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left on device.*NUMBA_CACHE_DIR") as said:
        function = njit(cache=True)(triple)
        assert (function(5), function(0.5)) == (15, 1.5)
    assert len(said) == 1
    assert not files(cache), "a part was left behind"


def test_a_folder_that_cannot_be_made_is_said_once(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    assert "Not a directory" in str(jit_cache.unwritable())
    with pytest.warns(RuntimeWarning, match="cannot be kept") as said:
        function = njit(cache=True)(triple)
        assert (function(5), function(0.5)) == (15, 1.5)
    assert len(said) == 1


def test_the_oldest_versions_are_deleted(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_cache, "KEPT", 3)
    for version in range(6):
        monkeypatch.setattr(jit_cache, "content_key", lambda file, v=version: str(v) * 64)
        njit(cache=True)(triple)(5)
        for path in (cache / "gnnsample_lab").iterdir():  # later ones are newer, on any file system
            age = (6 - int(path.name[-1])) * 1000
            os.utime(path, (time.time() - age,) * 2)
    kept = {path.name[-1] for path in (cache / "gnnsample_lab").iterdir()}
    assert kept == {"3", "4", "5"}


@pytest.mark.slow
def test_processes_that_compile_at_once_keep_their_functions_apart(tmp_path: Path) -> None:
    """Numba's index let two processes give the files of two signatures one name."""
    code = (
        "import sys, numpy as np\n"
        "from gnnsample_lab.minibatch.id_map.cpu import relabel_items as f\n"
        "t = np.dtype(sys.argv[1])\n"
        "out = np.empty(3, np.int32)\n"
        "n = f(np.array([7, 9, 7], t), np.zeros(8, np.uint64), np.empty(8, np.int32), np.empty(3, t), 0, out)\n"
        "print(n, out.tolist(), sum(f.stats.cache_hits.values()))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(PACKAGE.parent)}
    for expected_hits in (0, 1):
        running = [
            subprocess.Popen([sys.executable, "-c", code, kind], env=environment, stdout=subprocess.PIPE)
            for kind in ("int32", "int64", "uint32")
        ]
        answers = {process.communicate(timeout=300)[0].decode().strip() for process in running}
        assert answers == {f"2 [0, 1, 0] {expected_hits}"}


# -- keys -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_edit_of_the_generator_reaches_compiled_callers(tmp_path: Path) -> None:
    root, cache = copied(tmp_path / "code"), str(tmp_path / "cache")
    philox = root / "gnnsample_lab" / "device" / "philox.py"
    text = philox.read_text()
    before = run(root, DRAW, NUMBA_CACHE_DIR=cache)
    edited = re.sub(r"0xD2511F53", "0xD2511F55", text)
    assert edited != text
    rewrite(philox, edited)
    after = run(root, DRAW, NUMBA_CACHE_DIR=cache)
    fresh = run(root, DRAW, NUMBA_CACHE_DIR=str(tmp_path / "fresh"))
    assert after == fresh
    assert after != before
    rewrite(philox, text)
    again = run(root, DRAW, NUMBA_CACHE_DIR=cache)
    assert again.split(" Counter")[0] == before.split(" Counter")[0]
    assert again.count(": 1}") == 1, "the first version was compiled anew"


def test_an_edit_under_a_running_process_makes_no_entry(tmp_path: Path) -> None:
    """The code in memory is older than the file then: its machine code must not be found under the new content."""
    root, cache = copied(tmp_path / "code"), tmp_path / "cache"
    philox = root / "gnnsample_lab" / "device" / "philox.py"
    edit = (
        f"import pathlib, gnnsample_lab.device.philox\npathlib.Path({str(philox)!r}).open('a').write('#')\n"
    )
    run(root, edit + DRAW, NUMBA_CACHE_DIR=str(cache))
    assert not [path for path in files(cache) if path.suffix == ".nbc"]
    assert "Counter()" in run(root, DRAW, NUMBA_CACHE_DIR=str(cache))
    assert [path for path in files(cache) if path.suffix == ".nbc"]


def test_a_key_covers_what_a_module_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "toy"
    (package / "deep").mkdir(parents=True)
    texts = {
        "__init__.py": "",
        "used.py": "from toy.deep import (\n    constants,  # a comment\n    lazy as name,\n)\n",
        "relative.py": "from .deep.constants import X, Y\n",
        "sibling.py": "from . import relative\nimport toy.late, os\n",
        "inside.py": "def f():\n    from toy import late\n",
        "late.py": "",
        "deep/__init__.py": "def __getattr__(name): ...\n",
        "deep/constants.py": "X = 1\n",
        "deep/hidden.py": "from .. import late\n",
    }
    for name, text in texts.items():
        (package / name).write_text(text)
    monkeypatch.setattr(jit_cache, "PACKAGE_ROOT", package)
    monkeypatch.setattr(jit_cache, "_PACKAGE", "toy")

    def reached(name: str) -> set[str]:
        return {str(path.relative_to(package)) for path in jit_cache._closure(package / name)}

    assert reached("late.py") == {"late.py"}
    assert reached("inside.py") == {"inside.py"}
    assert reached("relative.py") == {"relative.py", "deep/constants.py"}
    assert reached("sibling.py") == {"sibling.py", "relative.py", "late.py", "deep/constants.py"}
    # ``lazy`` is no file: any module of the folder may define it.
    all_of_it = {"used.py", "deep/__init__.py", "deep/constants.py", "deep/hidden.py", "late.py"}
    assert reached("used.py") == all_of_it


def test_every_compiled_function_of_the_package_comes_from_here() -> None:
    own = {"jit.py", "jit_cache.py"}
    stray = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path.name not in own
        and re.search(r"from numba import[^\n]*\bn?jit\b|numba\.n?jit\(", path.read_text(encoding="utf-8"))
    ]
    assert not stray, stray


def test_no_warning_where_all_is_well(cache: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert njit(cache=True)(triple)(5) == 15
        assert njit(cache=True)(triple)(5) == 15
    assert jit_cache.unwritable() is None


# -- nowhere to write -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_read_only_install_with_an_unwritable_home_samples_and_the_doctor_knows(tmp_path: Path) -> None:
    root = copied(tmp_path / "code")
    for folder in [root / "gnnsample_lab", *(root / "gnnsample_lab").rglob("*/")]:
        (folder / "__pycache__").touch()  # a file: nothing can be written there, not even by root
    nowhere = tmp_path / "file"
    nowhere.touch()
    code = """
from gnnsample_lab import doctor
finding = doctor.check_numba()
print(finding.status, "cannot be kept" in finding.detail, "NUMBA_CACHE_DIR" in finding.remedy)
import gnnsample_lab as lab
graph = lab.Graph.from_edges([1, 2, 3, 4, 5], [0, 0, 1, 1, 2])
print(lab.NeighborSampler(graph, [2, 2], device="cpu").sample([0]).num_nodes)
"""
    said = run(root, code, HOME=str(nowhere), XDG_CACHE_HOME=str(nowhere), LOCALAPPDATA=str(nowhere))
    assert said.splitlines()[:2] == ["note True True", "6"]
    assert said.count("RuntimeWarning: gnnsample_lab: compiled functions cannot be kept") == 1


def test_the_doctor_says_where_compiled_functions_are_kept(cache: Path) -> None:
    from gnnsample_lab import doctor

    finding = doctor.check_numba()
    assert finding.status == doctor.OK and str(cache) in finding.detail


def test_the_doctor_promises_no_sampling_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    from gnnsample_lab import doctor
    from gnnsample_lab.device import jit

    def broken(**options: object) -> None:
        raise ImportError("no LLVM here")

    monkeypatch.setattr(jit, "njit", broken)
    findings = doctor.examine([doctor.check_numba])
    assert findings[0].status == doctor.PROBLEM and "no LLVM here" in findings[0].detail
    assert "sampling: no" in doctor.capabilities(findings)[0]
