"""What holds of the repository as a whole: layers, declared imports, notebooks, nothing of one machine."""

from __future__ import annotations

import ast
import functools
import itertools
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "gnnsample_lab"
WIDGETS = REPOSITORY / "widgets" / "gnnsample_widgets"

# Each may import itself and what stands before it. Single modules of the package's root are layers too.
LAYERS = (
    "lazy",
    "resources",
    "files",
    "checks",
    "readable",
    "spans",
    "traces",
    "device",
    "gpu_model",
    "figures",  # they name the error of modelled times, which the model knows
    "graph",
    "sampling",
    "minibatch",
    "steps",
    "features",
    "compute",
    "distributed",
    "pipeline",
    "pyg",
    "systems",
    "bench",
    "doctor",
    "course",
    "cli",
)

# Import name -> name on the package index, where they differ.
DISTRIBUTIONS = {"torch_geometric": "torch-geometric", "jupyter_server": "jupyter-server"}
# CuPy and what links kernels come with the extras cuda12 and cuda13, under names of their own.
OPTIONAL = {"cuda", "cupy", "cupyx", "cupy_backends"}


def tracked_files() -> list[Path]:
    """Files of the repository: tracked, or new and not ignored; without git, all but hidden and built ones."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        names = listing.stdout.decode().split("\0")
        return [REPOSITORY / name for name in names if name and (REPOSITORY / name).is_file()]
    return [
        path
        for path in REPOSITORY.rglob("*")
        if path.is_file()
        and not re.search(r"(^|/)(\.|__pycache__|build|dist)", str(path.relative_to(REPOSITORY)))
    ]


@functools.cache
def imported_modules(path: Path, root: Path) -> tuple[tuple[str, int], ...]:
    """Absolute names of all modules that a file of a package in ``root`` imports, also in functions, with lines."""
    return tuple(_imported(path, ".".join(path.relative_to(root.parent).parent.parts)))


def _imported(path: Path, package: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *filter(None, [node.module])])
            # `from gnnsample_lab import graph` names a module in the list of names.
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno


def layer_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "gnnsample_lab" and len(parts) > 1 and parts[1] in LAYERS else None


def upward_imports(source: Path, root: Path) -> list[str]:
    relative = source.relative_to(root.parent)
    own = layer_of(".".join(relative.with_suffix("").parts))
    if own is None:
        return []
    return [
        f"{relative}:{line} ({own}) imports {module}"
        for module, line in imported_modules(source, root)
        if (other := layer_of(module)) and LAYERS.index(other) > LAYERS.index(own)
    ]


def test_every_folder_and_module_has_a_layer() -> None:
    names = {path.stem for path in PACKAGE.glob("*.py")} | {
        path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))
    }
    assert names - set(LAYERS) == {"__init__"}


def test_folders_import_only_folders_above() -> None:
    found = [line for path in sorted(PACKAGE.rglob("*.py")) for line in upward_imports(path, PACKAGE)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "statement",
    [
        "from gnnsample_lab.minibatch.types import MiniBatch",
        "import gnnsample_lab.minibatch.types",
        "from gnnsample_lab import minibatch",
        "from ..minibatch import types",
        "def f():\n    from gnnsample_lab.minibatch import types",
    ],
)
def test_the_layer_test_sees_every_way_to_import(tmp_path: Path, statement: str) -> None:
    module = tmp_path / "gnnsample_lab" / "graph" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text(statement)
    assert len(upward_imports(module, tmp_path / "gnnsample_lab")) == 1


def upward_includes(source: Path, root: Path) -> list[str]:
    """CUDA includes that a source may not have: of a folder below its own, or not found where they should be."""
    relative = source.relative_to(root)
    found = []
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if match is None or (source.parent / match.group(1)).exists():
            continue  # a neighbour
        other = match.group(1).split("/")[0]
        if other not in LAYERS or not (root / match.group(1)).exists():
            found.append(f"{relative}:{number} includes {match.group(1)}, which is not in the package")
        elif LAYERS.index(other) > LAYERS.index(relative.parts[0]):
            found.append(f"{relative}:{number} ({relative.parts[0]}) includes {match.group(1)}")
    return found


def test_cuda_sources_include_only_folders_above() -> None:
    sources = [path for suffix in ("cu", "cuh") for path in sorted(PACKAGE.rglob(f"*.{suffix}"))]
    assert len(sources) > 30
    found = [line for path in sources for line in upward_includes(path, PACKAGE)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("include", "is_found"),
    [("minibatch/scan.cuh", True), ("gone.cuh", True), ("device/philox.cuh", False), ("near.cuh", False)],
)
def test_the_include_test_sees_what_it_should(tmp_path: Path, include: str, is_found: bool) -> None:
    for name in ("sampling/near.cuh", "minibatch/scan.cuh", "device/philox.cuh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    source = tmp_path / "sampling" / "kernel.cu"
    source.write_text(f'#include "{include}"\n')
    assert bool(upward_includes(source, tmp_path)) == is_found


def test_the_library_does_not_know_the_widgets() -> None:
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}"
        for path in PACKAGE.rglob("*.py")
        for module, line in imported_modules(path, PACKAGE)
        if module.split(".")[0] == "gnnsample_widgets"
    ]
    assert not found, found


def _declared() -> set[str]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *extras["distributed"], *extras["pictures"], *extras["pyg"]]
    return {re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0].lower() for requirement in requirements}


def test_third_party_imports_are_declared() -> None:
    declared = _declared()
    ours = {"gnnsample_lab", "gnnsample_widgets"}
    undeclared = set()
    for root in (PACKAGE, WIDGETS):
        for path in root.rglob("*.py"):
            for module, line in imported_modules(path, root):
                top = module.split(".")[0]
                if top in ours or top in sys.stdlib_module_names or top in OPTIONAL:
                    continue
                if DISTRIBUTIONS.get(top, top) not in declared:
                    undeclared.add(f"{path.relative_to(REPOSITORY)}:{line} imports {top}")
    assert not undeclared, "\n".join(sorted(undeclared))


def _forbidden() -> re.Pattern[str]:
    # Spelled so that this file does not hold what it looks for.
    folders = "|".join(("work", "farm", "root", "home", "Users"))
    hosts = "|".join((r"pypi\.", r"files\.python" + r"hosted\.", r"download\.py" + r"torch\.", r"anaconda\."))
    return re.compile(
        rf"(?<![\w.~$}}])/(?:{folders})/\w|https?://(?:\w+\.)*(?:{hosts})|--(?:extra-)?index" + r"-url"
    )


def test_files_hold_no_machine_paths_and_no_package_hosts() -> None:
    pattern = _forbidden()
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(REPOSITORY)}:{text.count(chr(10), 0, match.start()) + 1} {match.group()}"
            for match in pattern.finditer(text)
        ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("path = '/ho" + "me/ann/data'", True),
        ("/wo" + "rk/main/x", True),
        ("https://py" + "pi.org/simple", True),
        ("pip install --extra-index" + "-url somewhere", True),
        ("http://127.0.0.1:8888/lab", False),
        ("see docs/work/notes", False),
        ("a ratio of work/root", False),
    ],
)
def test_the_pattern_finds_what_it_should(text: str, is_found: bool) -> None:
    assert bool(_forbidden().search(text)) == is_found


def _notebooks() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".ipynb"]


def test_there_are_notebooks() -> None:
    assert any(path.name.startswith("00_") for path in _notebooks())


@pytest.mark.parametrize("path", _notebooks(), ids=lambda path: path.name)
def test_notebook_stores_no_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    assert "widgets" not in notebook["metadata"], "widget state is megabytes and stale at once"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(ids) == len(set(ids))
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            assert not cell["outputs"] and cell["execution_count"] is None, f"cell {number} stores an output"


def test_binder_installs_the_pinned_versions() -> None:
    """Binder has what the package needs, but the packages whose wheels bring CUDA."""
    lines = (REPOSITORY / "binder" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = {line.split("#")[0].strip() for line in lines} - {""}
    assert "-c ../constraints.txt" in wanted
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0] for requirement in project["dependencies"]}
    assert wanted - {"-c ../constraints.txt", "hatchling"} == needed - {"torch", "ogb"}


def test_constraints_pin_every_dependency() -> None:
    pins = {}
    for line in (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==")
            pins[name.lower().replace("_", "-")] = version
    assert "+" not in "".join(pins.values()), "a local version exists on one machine only"
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for requirement in itertools.chain(project["dependencies"], *project["optional-dependencies"].values()):
        name = re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0].lower()
        assert name in pins or name == "gnnsample-lab", f"{name} has no pin"
