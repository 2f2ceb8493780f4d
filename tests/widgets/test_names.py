"""The names that notebooks import, wherever their modules lie."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys

import gnnsample_widgets
import pytest

from tests.test_structure import REPOSITORY


def imported_by_notebooks() -> set[tuple[str, str]]:
    """(module, name) of all that the notebooks import from the explorers' package."""
    found = set()
    for path in sorted((REPOSITORY / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for module, names in re.findall(
                r"^from (gnnsample_widgets[\w.]*) import (.+)$", "".join(cell["source"]), re.M
            ):
                found |= {(module, name.strip()) for name in names.split(",")}
    return found


def test_notebooks_find_what_they_import() -> None:
    wanted = imported_by_notebooks()
    assert ("gnnsample_widgets.caching", "training_set") in wanted
    for module, name in wanted:
        assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


@pytest.mark.parametrize("name", gnnsample_widgets._MODULES)
def test_a_short_name_is_one_module(name: str) -> None:
    """A function replaced through one name is replaced through the other: there is no second copy."""
    module = getattr(gnnsample_widgets, name)
    assert sys.modules[module.__name__] is module
    assert getattr(gnnsample_widgets, name) is module


def test_importing_the_package_imports_no_explorer() -> None:
    program = (
        "import sys, gnnsample_widgets; print([m for m in sys.modules if 'plotly' in m or 'explorers' in m])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
