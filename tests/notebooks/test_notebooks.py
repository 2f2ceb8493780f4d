"""What every notebook has in common: structure, metadata, what is stored. That they run is nbval's part."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from gnnsample_widgets import exercises

from tests.notebooks import printed

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
PARTS = ["What you will see", "Choose a graph and a device", "Run it", "Move the sliders", "Why it happens"]
FAILING = "raises-exception"


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def notebook(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def headings(notebook: Any) -> list[str]:
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    return re.findall(r"^## (.+)$", text, flags=re.M)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_notebooks_are_there() -> None:
    assert [path.stem for path in PATHS] == [
        "00_start_here",
        "01_khop_sampling",
        "02_workload_fusion",
        "03_transit_parallel",
        "04_write_your_own_sampler",
        "05_the_id_map",
        "06_feature_caching",
        "07_match_and_reorder",
        "08_memory_aware_aggregation",
        "09_pipelines",
        "10_many_gpus",
    ]


def test_file_and_metadata_are_canonical(path: Path, notebook: Any) -> None:
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata == {
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    written = nbformat.writes(notebook)
    assert path.read_text(encoding="utf-8").rstrip("\n") == written.rstrip("\n"), "save it with nbformat"


def test_cells_have_fixed_ids_and_no_stray_metadata(notebook: Any) -> None:
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    for cell in notebook.cells:
        assert re.fullmatch(r"[a-z][a-z0-9-]*", cell.id), (
            f"{cell.id}: ids are words, so that changes can be read"
        )
        assert cell.metadata in ({}, {"tags": [FAILING]}), cell.id


def test_no_outputs_are_stored(notebook: Any) -> None:
    """What a figure looks like is in the embedded pictures, what a cell prints is in printed.json."""
    for cell in code_cells(notebook):
        assert cell.outputs == [] and cell.execution_count is None, f"{cell.id} stores an output"


def test_what_is_printed_belongs_to_cells(path: Path, notebook: Any) -> None:
    ids = {cell.id for cell in code_cells(notebook) if not printed.is_exercise(cell.source)}
    assert set(printed.EXPECTED.get(path.stem, {})) <= ids
    assert set(printed.EXPECTED) <= {path.stem for path in PATHS}


def test_another_output_is_noticed() -> None:
    """The check that nbval's runs are given can fail."""
    stem, (name, lines) = "02_workload_fusion", ("same", printed.EXPECTED["02_workload_fusion"]["same"])
    cell = nbformat.v4.new_code_cell("print('same sample:', True)", id=name)

    def said(text: str, stream: str = "stdout") -> list[Any]:
        return [nbformat.v4.new_output("stream", name=stream, text=text)]

    good = "\n".join(lines) + "\n"
    assert printed.problem(stem, cell, said(good)) == ""
    assert printed.problem(stem, cell, said("a progress bar", "stderr") + said(good)) == ""
    assert "instead of" in printed.problem(stem, cell, said(good.replace("True", "False")))
    assert "instead of" in printed.problem(stem, cell, [])
    blank = nbformat.v4.new_code_cell("exercises.lost_hop(...)", id="exercise-9")
    assert "does not say so" in printed.problem(stem, blank, said("right"))


def test_parts_come_in_order(path: Path, notebook: Any) -> None:
    found = headings(notebook)
    assert [part for part in found if part in PARTS] == PARTS
    assert found[-3:] == ["Exercises", "When would I use this?", "References"]
    title = notebook.cells[0].source.splitlines()[0]
    assert re.fullmatch(rf"# {path.stem[:2]} · .+", title)


def test_one_cell_chooses_graph_and_device(notebook: Any) -> None:
    choosing = [cell for cell in code_cells(notebook) if "DATASET =" in cell.source]
    assert [cell.id for cell in choosing] == ["setup"]
    assert "LAB_DATASET" in choosing[0].source and "LAB_DEVICE" in choosing[0].source
    for cell in code_cells(notebook):
        if "NeighborSampler(" in cell.source or "Explorer(" in cell.source:
            assert "device=DEVICE" in cell.source, f"{cell.id} ignores the chosen device"


def test_cells_say_how_many_of_the_shared_ranks_take_part(notebook: Any) -> None:
    """The explorer's slider starts more of them, and cells that are run again afterwards have as many parts as ever."""
    cells = code_cells(notebook)
    if not any("warm_ranks(" in cell.source for cell in cells):
        return
    calls = [
        node
        for cell in cells
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ranks.run"
    ]
    assert calls and all("world" in [given.arg for given in call.keywords] for call in calls)


def test_cells_are_short_and_hold_no_logic(notebook: Any) -> None:
    samplers = {"lab.SamplingApp"}
    for cell in code_cells(notebook):
        assert len(cell.source.splitlines()) <= 16, f"{cell.id}: move it into the package"
        rest = []
        for statement in ast.parse(cell.source).body:
            # Samplers are what learners write, loops and all.
            if isinstance(statement, ast.ClassDef) and samplers & set(map(ast.unparse, statement.bases)):
                samplers.add(statement.name)
            else:
                rest += list(ast.walk(statement))
        assert not [n for n in rest if isinstance(n, (ast.ClassDef, ast.While, ast.Try))], cell.id


def test_exercises_are_there_and_blank(path: Path, notebook: Any) -> None:
    checkers = exercises.ALL[path.stem[:2]]
    assert len(checkers) >= 3
    cells = [cell for cell in code_cells(notebook) if "exercises." in cell.source and cell.id != "setup"]
    assert [re.findall(r"exercises\.(\w+)\(", cell.source)[-1] for cell in cells] == [
        c.__name__ for c in checkers
    ]
    for cell in cells:
        assert "..." in cell.source, f"{cell.id} gives the answer away"


def test_pictures_are_shipped_and_small(path: Path, notebook: Any) -> None:
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    pictures = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", text)
    assert pictures
    for description, target in pictures:
        assert len(description) > 20, f"{target} needs a description for those who cannot see it"
        assert (path.parent / target).stat().st_size < 300_000, target


def test_nothing_of_one_machine_is_stored(path: Path) -> None:
    assert not re.search(r"/(home|root|tmp|work|usr)/|File \\\"", path.read_text(encoding="utf-8"))
