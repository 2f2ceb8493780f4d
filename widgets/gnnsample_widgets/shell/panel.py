"""A plotly figure in the page, updated in place.

plotly's own ``FigureWidget`` sends 5 MB of script with *every* figure, keeps the first figure as the one that
a reloaded page shows, and answers each update with messages of its own. With three or four figures per
explorer that is felt, on a remote server most of all. A :class:`PlotPanel` holds one trait, the figure as
JSON; the script travels once per page, compressed, through one shared :class:`PlotlyRuntime`.
"""

from __future__ import annotations

import functools
import gzip
import html
import importlib.resources
import re
from collections.abc import Callable
from typing import Any

import ipywidgets
import plotly
import plotly.graph_objects as go
import traitlets

from gnnsample_lab import checks
from gnnsample_lab.figures import palette

from .controls import STATIC
from .encode import to_json
from .store import PlotStore, Shared, Stored

LEAST_WIDTH = 390
"""Pixels that a panel gets at least: two of them fit side by side into a cell of 800."""


@functools.lru_cache(maxsize=1)
def _packed_script() -> bytes:
    source = importlib.resources.files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    return gzip.compress(source, compresslevel=3)


class PlotlyRuntime(Shared):
    """Carries plotly.js to the page. One per process; never displayed by itself."""

    packed = traitlets.Bytes(b"").tag(sync=True)
    dark = traitlets.Dict(help="colour of a figure -> the colour that replaces it on a dark page").tag(
        sync=True
    )


_runtime: PlotlyRuntime | None = None


def runtime() -> PlotlyRuntime:
    """The shared runtime, made anew where ``Widget.close_all`` has closed it."""
    global _runtime
    if _runtime is None or _runtime.comm is None:
        _runtime = PlotlyRuntime(packed=_packed_script(), dark=palette.DARK)
    return _runtime


class PlotPanel(Stored):
    """One figure. Assign :attr:`figure`; pages redraw with ``Plotly.react``, which keeps zoom and legend
    state.

    Args:
        name: distinguishes the panels of an explorer; also ``data-name`` of the element in the page.
        figure: the first figure, or what makes it when it is looked at; an empty one when None.
        height: of the panel with its title, in pixels, whatever the figure says; 0 leaves it to the figure.
        shown: whether pages draw it. What a panel is assigned while it is not shown is sent when it is shown.
    """

    _esm = (STATIC / "plot.js").read_text(encoding="utf-8")
    store_type = PlotStore

    _css = (STATIC / "explorer.css").read_text(encoding="utf-8")
    name = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(0).tag(sync=True)
    data = traitlets.Unicode("[]", help="the figure's traces as JSON").tag(live=True)
    frame = traitlets.Unicode("{}", help="the figure's layout as JSON").tag(live=True)
    alt = traitlets.Unicode("").tag(live=True)
    unfinished = traitlets.Unicode(
        "",
        help="'before': of the state before; 'so far': there will be more of it; 'opening': of another tab than that "
        "which is being opened; empty: all is there",
    ).tag(live=True)
    clicked = traitlets.Dict(help="the mark that was clicked last; empty before the first click").tag(
        live=True
    )
    runtime = traitlets.Instance(ipywidgets.Widget).tag(sync=True, **ipywidgets.widget_serialization)
    plotly_version = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        name: str,
        figure: go.Figure | Callable[[], go.Figure] | None = None,
        *,
        height: int = 0,
        shown: bool = True,
        **kwargs: Any,
    ) -> None:
        self._figure = go.Figure() if figure is None else figure
        self._shown, self._sent = shown, shown
        super().__init__(
            name=name,
            height=height,
            runtime=runtime(),
            plotly_version=plotly.__version__,
            **(self._parts(self.figure, name) if shown else {}),
            **kwargs,
        )

    @staticmethod
    def _parts(figure: go.Figure, name: str) -> dict[str, str]:
        title = figure.layout.title.text or name
        return {
            "alt": html.unescape(re.sub(r"<[^>]*>", "", title.replace("<br>", ": "))),
            # Where the figure keeps them: what it hands out are copies.
            "data": to_json(figure._data),
            "frame": to_json(figure._layout),
        }

    @property
    def figure(self) -> go.Figure:
        """The figure that is shown. Assigning replaces it; changing it in place shows nothing.

        What makes a figure may be assigned in its place: it is called once, when the panel is shown or the figure asked
        for.
        """
        if not self.drawn:
            self._figure = self._figure()
        return self._figure

    @figure.setter
    def figure(self, figure: go.Figure | Callable[[], go.Figure]) -> None:
        self._figure, self._sent = figure, False
        if self._shown:
            self._deliver()

    @property
    def kept(self) -> go.Figure | Callable[[], go.Figure]:
        """What was assigned to :attr:`figure`; nothing is drawn for it."""
        return self._figure

    @property
    def drawn(self) -> bool:
        """Whether the figure has been made; :attr:`figure` makes it."""
        return isinstance(self._figure, go.Figure)

    @property
    def shown(self) -> bool:
        """Whether pages draw this panel. One that is not shown costs them nothing: no figure is sent."""
        return self._shown

    @shown.setter
    def shown(self, shown: bool) -> None:
        self._shown = shown
        if shown and not self._sent:
            self._deliver()

    def _deliver(self) -> None:
        # Only what differs is sent: moving a time cursor changes the layout, and leaves megabytes of traces
        # alone.
        parts = self._parts(self.figure, self.name)
        self._sent = True
        with self.store.hold_sync():
            for part, text in parts.items():
                setattr(self, part, text)


def show(*figures: go.Figure, least_width: int = LEAST_WIDTH) -> ipywidgets.Box:
    """Figures side by side as far as each has ``least_width`` pixels.

    One panel type for all figures means that plotly.js is sent to the page once, and that no figure needs the
    network.

    Raises:
        TypeError: something that is no plotly figure.
    """
    checks.whole("least_width", least_width, low=1)
    layout = ipywidgets.Layout(flex=f"1 1 {least_width}px", min_width="0")
    panels = []
    for number, figure in enumerate(figures):
        checks.instance("figures", figure, go.Figure, "plotly figures")
        panels.append(PlotPanel(f"figure-{number}", figure, layout=layout))
    box = ipywidgets.Box(panels, layout=ipywidgets.Layout(display="flex", flex_flow="row wrap", width="100%"))
    box.add_class("gnnsample-figures")
    return box
