"""How long a moved slider takes until its plot is redrawn, in Chromium, for every explorer.

    python -m tests.browser.slider_to_plot [SampleExplorer ...]

Prints a table: median and worst of some moves of each of an explorer's sliders, from the input event to the moment when
a visible plot is drawn anew from what the changed setting gave ("seen"), of long runs from the first part of it; to the
moment when the kernel has answered and everything visible is drawn ("all"); and what the kernel says that its run
took. Where no visible plot changes, "seen" is "all". No test: times depend on what else the machine does.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
import tempfile

from gnnsample_lab.doctor import find_chromium
from tests.browser import lab_server
from tests.browser.lab_server import ALL_DRAWN
from tests.browser.test_notebooks_in_browser import EXPLORERS

REPEATS = 5

MOVE = """async ([index, name, repeats]) => {
  const root = document.querySelectorAll('.gnnsample-explorer')[index];
  const status = () => root.querySelector('.gs-status').dataset;
  const field = root.querySelector(`.gs-control[data-name="${name}"] input[type=range]`);
  const plots = [...root.querySelectorAll('.gs-plot')].filter((plot) => plot.clientWidth > 0);
  const drawn = () => plots.map((plot) => plot.dataset.drawn);
  const quiet = () => status().busy === '0' && !plots.some((plot) => plot.dataset.busy !== '0');
  const times = [];
  const home = field.value;
  for (let i = 0; i < repeats + 1; i++) {
    do { await new Promise((resolve) => setTimeout(resolve, 300)); } while (!quiet());
    const [run, before] = [Number(status().run), drawn()];
    const [value, low, high, step] = [field.value, field.min, field.max, field.step].map(Number);
    if (field.disabled || low === high) return null;
    const began = performance.now();
    let seen = null;
    field.value = value + step <= high ? value + step : low;
    field.dispatchEvent(new Event('input', { bubbles: true }));
    while (!(Number(status().run) > run && quiet())) {
      if (performance.now() - began > 60000) return null;
      if (seen === null && drawn().some((count, at) => count !== before[at])) seen = performance.now() - began;
      await new Promise((resolve) => setTimeout(resolve, 4));
    }
    const said = root.querySelector('.gs-status').innerText.match(/([\\d.]+) ms/)[1];
    const all = performance.now() - began;
    times.push([seen ?? all, all, Number(said)]);
  }
  field.value = home;  // what the next slider is moved from is the opening setting
  field.dispatchEvent(new Event('input', { bubbles: true }));
  await new Promise((resolve) => setTimeout(resolve, 500));
  while (!quiet()) await new Promise((resolve) => setTimeout(resolve, 50));
  return times.slice(1);  // the first warms up
}"""
SLIDERS = """(index) => [...document.querySelectorAll('.gnnsample-explorer')[index]
  .querySelectorAll('.gs-control input[type=range]')].map((one) => one.name)"""


def main(kinds: list[str]) -> None:
    """Print the table for these explorers, all of them if none is named."""
    kinds = kinds or sorted({kind for names in EXPLORERS.values() for kind in names})
    cells = [("import gnnsample_widgets as w; import gnnsample_lab as lab; g = lab.load('arxiv-like')")]
    cells += [f"w.{kind}(g)" for kind in kinds]
    notebook = {
        "cells": [
            {
                "cell_type": "code",
                "id": f"c{i}",
                "metadata": {},
                "source": cell,
                "outputs": [],
                "execution_count": None,
            }
            for i, cell in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "notebooks"
        folder.mkdir()
        (folder / "all.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
        settings = {"LAB_DATASET": "arxiv-like", "LAB_DEVICE": "cpu"}
        with (
            lab_server.running_lab(folder, pathlib.Path(scratch), settings) as server,
            lab_server.browser_page(str(find_chromium()), 1280, 900) as page,
        ):
            lab_server.open_notebook(page, server, "all.ipynb")
            lab_server.run_all(page)
            page.wait_for_function(ALL_DRAWN)  # type: ignore[attr-defined]
            print(f"{'explorer':<20} {'slider':<16}   seen  (worst)    all  kernel (ms)")
            for index, kind in enumerate(kinds):
                all_seen: list[float] = []
                for slider in page.evaluate(SLIDERS, index):  # type: ignore[attr-defined]
                    found = page.evaluate(MOVE, [index, slider, REPEATS])  # type: ignore[attr-defined]
                    if found:
                        seen, done, kernel = zip(*found, strict=True)
                        all_seen += seen
                        print(
                            f"{kind:<20} {slider:<16} {statistics.median(seen):6.0f}  {max(seen):6.0f}  "
                            f"{statistics.median(done):6.0f}  {statistics.median(kernel):6.0f}",
                            flush=True,
                        )
                if all_seen:
                    print(f"{kind:<20} {'all sliders':<16} {statistics.median(all_seen):6.0f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
