"""What of the source counts for a suite, and that its hash sees every change that could matter and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from gnnsample_lab.bench import source
from gnnsample_lab.bench.suites import SUITES

PROGRAM = '''"""What it is."""
import os  # for the path

LIMIT = 3
"""How many."""


def f(x: int = 1) -> str:
    """Shown to whoever asks."""
    return f"{x!r:>{LIMIT}} # no comment"  # a comment
'''


def test_comments_docstrings_and_formatting_do_not_count() -> None:
    other = """import os
LIMIT = (
    3
)
def f(x : int=1)->str:
    return (f'{x!r:>{LIMIT}} # no comment')
"""
    assert source.stripped_python(PROGRAM) == source.stripped_python(other)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"), ("!r", "!s"), ("# no comment", "# a comment"), ("x: int = 1", "x: int = 2"),
        ("import os", "import sys"), ("return f", "return 'x' + f"), ("def f", "def g"),
    ],
)  # fmt: skip
def test_every_other_change_of_a_program_does(old: str, new: str) -> None:
    assert old in PROGRAM
    assert source.stripped_python(PROGRAM) != source.stripped_python(PROGRAM.replace(old, new))


KERNEL = """// what it does
// @cooperative
#define N 4  // as many
__global__ void k(int* a) {  /* over
two lines */
    const char* s = "// no comment /* nor this */";
    a[0] = N / 2;  // 'halves'
}
"""


def test_of_cuda_comments_and_blanks_do_not_count_either() -> None:
    other = """
// @cooperative
#define   N 4
__global__ void k(int* a) {
  const char* s = "// no comment /* nor this */";

  a[0] = N / 2;
}"""
    assert source.stripped_cuda(KERNEL) == source.stripped_cuda(other)


@pytest.mark.parametrize(
    ("old", "new"),
    [("N 4", "N 5"), ("// @cooperative", "// cooperative"), ("no comment", "a comment"), ("N / 2", "N // 2\n")],
)  # fmt: skip
def test_every_other_change_of_a_kernel_does(old: str, new: str) -> None:
    assert old in KERNEL
    assert source.stripped_cuda(KERNEL) != source.stripped_cuda(KERNEL.replace(old, new))


@pytest.fixture
def tree(tmp_path: Path) -> source.Tree:
    files = {
        "__init__.py": "from pkg.lazy import exports\n_HOMES = {'f': 'room', 'g': 'other.deep'}\n"
        "__getattr__, __dir__ = exports(__name__, _HOMES, ('other',))",
        "lazy.py": "import importlib\n",
        "start.py": "import pkg as lab\nfrom typing import TYPE_CHECKING\nfrom . import sibling\n"
        "if TYPE_CHECKING:\n    from .types_only import T\ndef run():\n    from .late import x\n    lab.g(lab.f)\n",
        "sibling.py": "", "late.py": "x = 'end/named.cu'", "types_only.py": "", "unused.py": "",
        "room/__init__.py": "from pkg.lazy import exports\n__getattr__, __dir__ = exports(__name__, {'f': 'inner'})",
        "room/inner.py": "from ..choice import pick\nf = None", "other/__init__.py": "",
        "other/deep.py": "def g(x): ...",
        "choice/__init__.py": "def pick(name):\n    import importlib\n    importlib.import_module(name)\n",
        "choice/one.py": "", "choice/two.py": "from pkg import unused",
        "late/end/named.cu": '#include "near.cuh"\n#include "far/head.cuh"', "late/end/near.cuh": "",
        "far/head.cuh": "int h;", "far/alone.cu": "",
    }  # fmt: skip
    root = tmp_path / "pkg"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return source.Tree((("pkg", root),))


def test_a_module_reaches_what_it_imports_and_launches(tree: source.Tree) -> None:
    """Late imports, names forwarded lazily through two packages, a choice made at run time, kernels and headers; not
    what is imported for types alone, nor what nobody names."""
    root = dict(tree.roots)["pkg"]
    found = {path.relative_to(root).as_posix() for path in tree.closure("pkg.start")}
    assert found == {
        "start.py", "sibling.py", "late.py", "room/inner.py", "other/deep.py", "choice/__init__.py", "choice/one.py",
        "choice/two.py", "unused.py", "late/end/named.cu", "late/end/near.cuh", "far/head.cuh",
    }  # fmt: skip


def test_the_hash_changes_with_any_of_these_files_and_names_its_layer(tree: source.Tree) -> None:
    root = dict(tree.roots)["pkg"]

    def fresh() -> dict[str, dict[str, str]]:
        source._digest.cache_clear()
        source._parsed.cache_clear()
        again = source.Tree((("pkg", root),))
        again._reached.cache_clear()
        return {"": source.described(again.closure("pkg.start"), again)}

    before = fresh()[""]
    (root / "late.py").write_text("# moved\nx = 'end/named.cu'\n")
    (root / "far/alone.cu").write_text("int other;")
    assert fresh()[""] == before, "a comment, and a file that is not reached"
    (root / "far/head.cuh").write_text("int g;")
    after = fresh()[""]
    assert after["hash"] != before["hash"] == source.total(before["layers"])
    assert {name for name in after["layers"] if after["layers"][name] != before["layers"].get(name)} == {
        "pkg"
    }


def test_a_suite_knows_its_kernels_and_not_those_of_others() -> None:
    path = SUITES["pgsampler-fig8"].path
    tree = source.package_tree()
    files = tree.closure(f"gnnsample_lab.bench.{path.rpartition('.')[0]}")
    names = {file.relative_to(source.PACKAGE_ROOT).as_posix() for file in files}
    assert {
        "bench/suites/pgsampler/kernels.py", "bench/timing.py", "bench/floors/floor.cu", "graph/__init__.py",
        "minibatch/gpu/finish.cu", "sampling/neighbors/launch.py", "sampling/neighbors/queue/block.cu",
        "sampling/neighbors/hops/hop.cu", "device/philox.cuh",
    } <= names  # fmt: skip
    assert not [name for name in names if name.split("/")[0] in ("compute", "systems", "pipeline", "figures")]
    found = source.of_function(path)
    assert found["hash"] == source.total(found["layers"]) and "sampling" in found["layers"]


def test_who_imports_by_names_of_others_is_known() -> None:
    """`FORWARDERS` are passed over because what they import is found elsewhere: a new one has to be thought about."""
    dynamic = set()
    for path in source.PACKAGE_ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not re.search(r"import_module\(", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and source._called(node) == "import_module":
                dynamic.add(path.relative_to(source.PACKAGE_ROOT).as_posix())
    forwarders = {name.partition(".")[2].replace(".", "/") + ".py" for name in source.FORWARDERS}
    assert dynamic - forwarders == {
        "distributed/sampling/engines.py",
        "course/pictures.py",
        "bench/suites/explorers.py",
    }
