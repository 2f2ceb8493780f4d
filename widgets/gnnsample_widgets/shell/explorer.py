"""The base of all explorers: state in traits, one run at a time, errors in the panel, code to take away."""

from __future__ import annotations

import base64
import contextlib
import functools
import html
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import ipywidgets
import plotly.graph_objects as go
import traitlets

from gnnsample_lab import checks
from gnnsample_lab.device.runtime import lock, resolve_device
from gnnsample_lab.figures.style import PANEL_HEIGHT
from gnnsample_lab.graph.lacks import lacking

from ..graphs import resolve_graph, to_device
from . import still
from .controls import CodePanel, Control, Tabs
from .messages import error_html, status_html
from .panel import LEAST_WIDTH, PlotPanel
from .recipe import LAST, Figures, Recipe, SoFar, follow, hand_over
from .store import close_all

_REMEMBERED = 48
"""Results of steps that are kept: three runs of the longest recipes (a cache's has 13 steps, a comparison of all
strategies 16 results), so that a control that goes back finds all that it left. Not more: a result may be as large as
a number per vertex of the graph."""
LONG_MS = 250
"""A run that takes longer shows what it has meanwhile, and no more often than this: an eye waits no longer."""


class _Superseded(Exception):
    """What a run has shown is true, and what it would still show is not asked for any more."""


class Explorer(ipywidgets.VBox):
    """Controls above figures; a change of any control runs the recipe again and redraws.

    A subclass tags its state traits with ``state=True`` and gives :attr:`recipe`, :meth:`build_controls` and
    :meth:`summary`. Setting a control's ``.value`` or the trait of the same name does the same thing, and
    the figures are up to date when the assignment returns: nothing here needs a browser or an event loop.

    Widget callbacks may arrive on a thread beside a running cell (JupyterLab's subshells). Work on the
    sampler and the GPU therefore holds the library's one process-wide lock, and changes that come in while a
    run is under way are folded into a single further run with the newest state; :meth:`wait` blocks until
    that is done.

    Args:
        graph: a graph, a dataset name for ``lab.load``, or None for the default graph (``LAB_DATASET``, else
            ogbn-arxiv or its synthetic twin).
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``, as everywhere in the library.
        raise_errors: raise what a run raises, after showing it in the panel; for scripts.
        **state: starting values of the state traits.

    Raises:
        TypeError: an unknown name in ``state``.
        traitlets.TraitError: a starting value that its control does not allow.
        ValueError: a graph without vertices.
        RuntimeError: ``device="cuda"`` without a usable GPU.
    """

    heading: ClassVar[str] = ""
    on_graph: ClassVar[bool] = True
    """Whether the figures are of a graph; else none is loaded."""
    graph: Any
    _closed = False
    from_split: ClassVar[bool] = False
    """Whether its seeds come from the training split; where there is none, the summary says that they do not."""
    recipe: ClassVar[Recipe] = {}
    """The steps from the graph to the figures, see :mod:`.recipe`; run, and handed over as code."""
    views: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Title of a tab -> names of the one or two panels that it shows side by side. Left empty, two panels stand in one
    view without a tab, and more in a tab for each pair. Panels that no view names come in tabs of their own."""
    shares: ClassVar[dict[str, int]] = {}
    """Share of the width of a panel, against the one beside it; 1 where it is not named."""
    grows: ClassVar[tuple[str, ...]] = ()
    """Panels that can be drawn with part of what :class:`.recipe.Each` lists, or of what :func:`.recipe.so_far` tells:
    of a long run they show what there is, marked as unfinished, until there is all of it."""
    kept_by_adapt: ClassVar[tuple[str, ...]] = ()
    """Attributes besides the state that :meth:`adapt` sets, for :meth:`set` to put back when it refuses a value."""
    panel_height: ClassVar[int] = PANEL_HEIGHT
    """Pixels of every panel with its title, at every state, so that nothing on the page moves."""

    view = traitlets.Unicode("", help="title of the open tab")
    busy = traitlets.Bool(False, help="a run is under way")
    run_count = traitlets.Int(0, help="runs so far, failed ones included")
    elapsed_ms = traitlets.Float(0.0, help="wall time of the last run, figures included")
    error = traitlets.Unicode(
        "", help="type and message of the last run's exception; empty when it went well"
    )
    code = traitlets.Unicode("", help="Python that reproduces the present figures")

    def __init__(
        self, graph: Any = None, *, device: str = "auto", raise_errors: bool = False, **state: Any
    ) -> None:
        super().__init__()
        try:
            self._begin(graph, device, raise_errors, state)
        except BaseException:
            self.close()  # ipywidgets keeps every widget that is not closed
            raise

    def _begin(self, graph: Any, device: str, raise_errors: bool, state: dict[str, Any]) -> None:
        self._check_names(state)
        self.raise_errors = checks.flag("raise_errors", raise_errors)
        still.warm()
        self.device = resolve_device(device)
        self.graph, self.graph_code = resolve_graph(graph) if self.on_graph else (None, [])
        if self.on_graph:
            self.device_graph = to_device(self.graph, self.device)
            self.host_graph = to_device(self.graph, "cpu")
        self._memory: OrderedDict[Hashable, Any] = OrderedDict()
        self._gate = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._showing = threading.RLock()
        self._present: tuple[str, ...] = ()
        self._keys: dict[str, Hashable] = {}
        # What panels showed in the last state that worked: runs that are given up do not get there.
        self._before: dict[str, tuple[Any, Hashable]] = {}
        self._view_failed = False
        self._wanted = self._target = 0
        self._began_s = self._sketched_s = 0.0
        self._num_shown = self._runner = 0
        self._running = False
        self._held = 1
        self._shown_state: dict[str, Any] = {}
        self.prepare(state)
        for name, value in state.items():
            setattr(self, name, value)
        self.controls: dict[str, Control] = self.build_controls()
        self.panels: dict[str, PlotPanel] = {}
        self._build_layout()
        for control in self.controls.values():
            control.observe(self._control_moved, names="value")
        # What has no control is set in code alone.
        for name in {**self.state, **self.controls}:
            self.observe(self._state_changed, names=name)
        self.adapt()
        self._held = 0
        self.refresh()

    # -- what a subclass gives --

    def prepare(self, state: dict[str, Any]) -> None:
        """Choose starting values that depend on the graph, for names not in ``state``. Optional."""

    def build_controls(self) -> dict[str, Control]:
        """The controls, keyed by state trait, in the order of the panel."""
        raise NotImplementedError

    def adapt(self) -> None:
        """Keep controls consistent with each other (limits, enabled or not). Called before each run, and by
        :meth:`set`. Optional."""

    def clicked(self, panel: str, mark: dict[str, Any]) -> None:
        """A mark of a figure was clicked: set state, or do nothing. Optional.

        Args:
            panel: name of the figure's panel.
            mark: ``trace`` (its number in the figure), ``x`` and ``y`` (of the mark, as the trace has them) and
                ``clicks`` (how many the panel has had).
        """

    def parameters(self, state: dict[str, Any]) -> dict[str, Any]:
        """What the recipe may ask for by name besides the graph and the device. Optional: the state, unless given."""
        return state

    def summary(self, made: dict[str, Any]) -> str:
        """One sentence that says what the figures show (HTML).

        Args:
            made: what the recipe was given and what its steps made, by name.
        """
        raise NotImplementedError

    def compute(self, state: dict[str, Any]) -> tuple[Mapping[str, go.Figure], Callable[[], str]]:
        """Figures by panel name, in order, each drawn when it is looked up, and what makes their summary."""
        made: Any = follow(self.recipe, self._given(state), self.remember, self._show_so_far)
        return made[LAST], lambda: self.summary(made)

    def _given(self, state: dict[str, Any]) -> dict[str, Any]:
        graphs = (
            {"g": self.graph, "host": self.host_graph, "on_device": self.device_graph}
            if self.on_graph
            else {}
        )
        return {**graphs, "device": self.device, **self.parameters(state)}

    # -- state --

    @property
    def state(self) -> dict[str, Any]:
        """The state traits by name."""
        return {name: getattr(self, name) for name in self.trait_names(state=True)}

    @property
    def figures(self) -> dict[str, go.Figure]:
        """The figures of the present state by panel name, those behind tabs too: they are drawn when asked for."""
        return {name: self.panels[name].figure for name in self._present if name in self.panels}

    def set(self, **state: Any) -> None:
        """Set several state traits and run once; all of them, or none.

        The limits of one control may follow another one: what counts are the limits that go with the new values. The
        state of one explorer can be set on another of its kind.

        Raises:
            TypeError: an unknown name.
            traitlets.TraitError: a value that its control does not allow.
        """
        self._check_names(state)
        before, kept = self.state, {name: getattr(self, name) for name in self.kept_by_adapt}
        with self.hold():
            try:
                self._set_where_allowed(state)
                for name, value in state.items():
                    setattr(self, name, value)
            except BaseException:
                for _ in range(2):
                    self._set_where_allowed(before)
                for name, value in kept.items():
                    setattr(self, name, value)
                raise

    def _set_where_allowed(self, state: Mapping[str, Any]) -> None:
        """Set what the present limits allow, and move the limits to where they belong then."""
        for name, value in state.items():
            with contextlib.suppress(traitlets.TraitError):
                setattr(self, name, value)
        self.adapt()

    def _check_names(self, state: Mapping[str, Any]) -> None:
        unknown = sorted(set(state) - set(self.state))
        if unknown:
            raise TypeError(f"{type(self).__name__} has no state {unknown} (it has {sorted(self.state)})")

    def close(self) -> None:
        """Take the explorer off its pages for good, and let go of the graph, the samples and every widget of it."""
        self._closed = True
        self.unobserve_all()
        for panel in getattr(self, "panels", {}).values():
            close_all(panel)  # those behind tabs are nobody's children yet
        # ipywidgets closes a widget that is being collected, half made or closed before.
        for kept in ("_memory", "_before", "panels", "controls"):
            getattr(self, kept, {}).clear()
        close_all(self)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Put off runs until the block ends; then one run shows the result of all changes."""
        with self._holding():
            yield
        self.refresh()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until no run is under way; False when ``timeout`` seconds passed first."""
        return self._idle.wait(timeout)

    def remember(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """``make()``, kept under ``key`` for the last few keys: a control that only looks must not
        resample."""
        if key not in self._memory:
            self._memory[key] = make()
        self._memory.move_to_end(key)
        while len(self._memory) > _REMEMBERED:
            self._memory.popitem(last=False)
        return self._memory[key]

    def _control_moved(self, change: dict[str, Any]) -> None:
        setattr(self, change["owner"].name, change["new"])

    def _state_changed(self, change: dict[str, Any]) -> None:
        control = self.controls.get(change["name"])
        try:
            if control is not None:
                control.value = change["new"]
        except traitlets.TraitError:
            # The control knows what is allowed; a refused value must not stay in the trait.
            with self._without_run(change["name"]):
                setattr(self, change["name"], change["old"])
            raise
        self.refresh()

    def _panel_clicked(self, change: dict[str, Any]) -> None:
        if change["new"] and not self._closed:
            self.clicked(change["owner"].name, change["new"])

    @contextlib.contextmanager
    def _without_run(self, name: str) -> Iterator[None]:
        """Set one state trait without a run."""
        self.unobserve(self._state_changed, names=name)
        try:
            yield
        finally:
            self.observe(self._state_changed, names=name)

    # -- running --

    def refresh(self) -> None:
        """Run with the present state; if a run is under way, have it run once more with the newest state."""
        with self._gate:
            if self._held or self._closed:
                return
            self._wanted += 1
            if self._running:
                return
            self._running = True
            self._idle.clear()
        try:
            while True:
                with self._gate:
                    self._target = self._wanted
                self._run()
                with self._gate:
                    if self._wanted == self._target:
                        # Together, and not again below: as soon as the gate opens, another thread's run may begin.
                        self._running = False
                        self._idle.set()
                        return
        except BaseException:
            with self._gate:
                self._running = False
                self._idle.set()
            raise

    def _run(self) -> None:
        start = time.perf_counter()
        long = self.elapsed_ms > LONG_MS
        self.busy = True
        self._show_status()
        self._began_s, self._num_shown = start, 0
        self._runner = threading.get_ident()
        failure: Exception | None = None
        try:
            # Changes that adapt() makes belong to this run.
            with self._holding():
                self.adapt()
            state = self._shown_state = self.state
            with lock:
                figures, words = self.compute(state)
            # Each as soon as it is drawn; those behind tabs when they are looked at.
            changed = [name for name in self._opened(figures) if self._differs(figures, name)]
            for number, name in enumerate(changed):
                self._go_on()
                if number == 1 and long:
                    self._mark(changed[1:], "before")
                figure = _draw(figures, name)
                if name in self.panels and self.panels[name].shown:
                    self._put(name, figure, figures)
            self._show_figures(figures)
            self._go_on()
            with lock:
                summary = words()
            self._summary.value = (
                f'<div class="gs-summary" aria-live="polite">{summary}{self._seeds_note()}</div>'
            )
            self.code = hand_over(self.recipe, self._given(state), self.graph_code)
            self._before.clear()
        except _Superseded:
            pass  # the next run begins at once
        except Exception as error:
            # An exception in a callback is printed nowhere: the panel is the one place where it can be read.
            failure = error
            self._put_back()
        finally:
            # In any case, an interrupt from the keyboard included: a panel must not stay busy for ever.
            self._show_error(failure)
            self._runner = 0
            self._mark(self.panels, "")
            self.elapsed_ms = (time.perf_counter() - start) * 1e3
            self.run_count += 1
            self.busy = False
            self._show_status()
        if failure is not None and self.raise_errors:
            raise failure

    def _go_on(self) -> None:
        """Stop here where something newer is asked for and this run has shown something: a drag does not queue.

        Raises:
            _Superseded: so it is.
        """
        if self._num_shown and self._wanted != self._target:
            raise _Superseded

    def _put(self, name: str, figure: go.Figure, figures: Any, unfinished: str = "") -> None:
        """Show a figure in a panel that is looked at."""
        with self._showing:
            self._assign(name, figure, figures)
            self._num_shown += 1
        self.panels[name].unfinished = unfinished

    def _assign(self, name: str, figure: go.Figure | Callable[[], go.Figure], figures: Any) -> None:
        panel = self.panels[name]
        self._before.setdefault(name, (panel.kept, self._keys.get(name)))
        self._keys[name] = figures.key(name) if isinstance(figures, Figures) else None
        panel.figure = figure

    def _put_back(self) -> None:
        """After a failure all panels show the last state that worked."""
        with self._showing:
            for name, (kept, key) in self._before.items():
                self.panels[name].figure = kept
                self._keys[name] = key
            self._before.clear()

    def _mark(self, names: Iterable[str], unfinished: str) -> None:
        """Say in these panels that they are of the state before, or part of what will be there, or neither."""
        for name in names:
            if name in self.panels:
                self.panels[name].unfinished = unfinished

    def _show_so_far(self, part: SoFar) -> None:
        """In the middle of a long run: draw what there is in the panels that are looked at and can grow."""
        if self._runner != threading.get_ident():
            return  # a tab is being opened, and its figure made
        self._go_on()
        now = time.perf_counter()
        first = self._num_shown == 0
        expected_long = self.elapsed_ms > LONG_MS or now - self._began_s > LONG_MS / 2e3
        if not self.run_count or not expected_long or not (first or now - self._sketched_s > LONG_MS / 1e3):
            return
        # Not waited for: who opens a tab may hold it, and wait for the lock that this run has.
        if not self._showing.acquire(blocking=False):
            return
        try:
            for name in self._opened():
                figure = part.figure(name) if name in self.grows and self.panels[name].shown else None
                if figure is not None:
                    self._put(name, figure, part, "so far")
                elif part.changes(name):
                    self._mark([name], "before")
        finally:
            self._showing.release()
        self._sketched_s = time.perf_counter()

    @contextlib.contextmanager
    def _holding(self) -> Iterator[None]:
        # Counted under the gate: a cell and a callback may both hold.
        with self._gate:
            self._held += 1
        try:
            yield
        finally:
            with self._gate:
                self._held -= 1

    # -- showing --

    def _build_layout(self) -> None:
        self.add_class("gnnsample-explorer")
        self._title = ipywidgets.HTML(f'<div class="gs-title">{html.escape(self.heading)}</div>')
        self._status = ipywidgets.HTML()
        self._summary = ipywidgets.HTML()
        self.error_panel = ipywidgets.HTML(layout=ipywidgets.Layout(display="none"))
        self.code_panel = CodePanel()
        traitlets.dlink((self, "code"), (self.code_panel, "code"))
        self._control_box = ipywidgets.Box(list(self.controls.values()))
        self._control_box.add_class("gs-controls")
        self._tabs = Tabs(f"Views of: {self.heading}")
        traitlets.link((self, "view"), (self._tabs, "value"))
        self.observe(self._tab_opened, names="view")
        self._figure_box = ipywidgets.Box([])
        self._figure_box.add_class("gs-figures")
        header = ipywidgets.Box([self._title, self._status])
        header.add_class("gs-header")
        self.children = (
            header,
            self._control_box,
            self.error_panel,
            self._tabs,
            self._figure_box,
            self._summary,
            self.code_panel,
        )

    def _views_of(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Title -> panels of every view that has something to show."""
        there = tuple(names)
        found = {
            title: shown
            for title, panels in self.views.items()
            if (shown := tuple(name for name in panels if name in there))
        }
        rest = [name for name in there if not any(name in panels for panels in found.values())]
        pairs = [tuple(rest[at : at + 2]) for at in range(0, len(rest), 2)]
        return {**found, **{" and ".join(pair): pair for pair in pairs}}

    @traitlets.validate("view")
    def _known_view(self, proposal: dict[str, Any]) -> str:
        known = list(self._views_of(self._present))
        if known and proposal["value"] not in known:
            raise traitlets.TraitError(f"view must be one of {known} (got {proposal['value']!r})")
        return str(proposal["value"])

    def _differs(self, figures: Mapping[str, go.Figure], name: str) -> bool:
        """Whether a panel's figure is another one than that which it has."""
        return not (
            isinstance(figures, Figures) and name in self.panels and figures.key(name) == self._keys.get(name)
        )

    def _show_figures(self, figures: Mapping[str, go.Figure]) -> None:
        with self._showing:
            self._present = tuple(figures)
            titles = list(self._views_of(figures))
            for name in figures:
                if not self._differs(figures, name):
                    continue
                draw = functools.partial(_draw, figures, name)
                if name in self.panels:
                    self._assign(name, draw, figures)
                else:
                    layout = ipywidgets.Layout(
                        flex=f"{self.shares.get(name, 1)} 1 {LEAST_WIDTH}px", min_width="0", display="none"
                    )
                    self.panels[name] = PlotPanel(
                        name, draw, height=self.panel_height, shown=False, layout=layout
                    )
                    self.panels[name].observe(self._panel_clicked, names="clicked")
                    self._keys[name] = figures.key(name) if isinstance(figures, Figures) else None
            if self._tabs.options != titles:
                self._tabs.options = titles
            if titles and self.view not in titles:
                self.view = titles[0]
            self._open_view()

    def _tab_opened(self, _: Any) -> None:
        failure: Exception | None = None
        try:
            opened = [self.panels[name] for name in self._opened()]
            if not all(panel.drawn for panel in opened):
                # What stands there until then is of another tab.
                self._mark([name for name, panel in self.panels.items() if panel.shown], "opening")
                self._show_status(opening=True)
            for panel in opened:
                _ = panel.figure  # drawn before anything moves
            self._open_view()
        except Exception as error:
            failure = error
        if failure is not None or self._view_failed:
            self._show_error(failure)
        self._view_failed = failure is not None
        self._mark(self.panels, "")
        self._show_status()
        if failure is not None and self.raise_errors:
            raise failure

    def _opened(self, names: Iterable[str] | None = None) -> tuple[str, ...]:
        """Of these panels, or of all that there are, those of the open view; of the first one where it is gone."""
        views = self._views_of(self._present if names is None else names)
        return views.get(self.view, next(iter(views.values()), ()))

    def _drawn(self) -> dict[str, go.Figure]:
        """The figures of the open view by panel name, all but those that could not be drawn."""
        opened = [self.panels[name] for name in self._opened() if name in self.panels]
        return {panel.name: panel.figure for panel in opened if panel.drawn}

    def _open_view(self) -> None:
        """Let the page draw the panels of the open view, and no other."""
        with self._showing:
            opened = self._opened()
            for name, panel in self.panels.items():
                panel.shown = name in opened
                display = "block" if name in opened else "none"
                if panel.layout.display != display:
                    panel.layout.display = display
                if name in opened:
                    panel.layout.order = str(opened.index(name))
            # A panel comes into the page when it is first looked at, and stays there: at the end, since the page
            # would build all that stand behind it anew.
            there = self._figure_box.children
            self._figure_box.children = (
                *there,
                *(self.panels[n] for n in opened if self.panels[n] not in there),
            )

    def _seeds_note(self) -> str:
        """Where seeds come from, if it is not where a reader expects them to."""
        if not self.from_split or "training split" not in lacking(self.graph):
            return ""
        return f" Seeds are drawn from <b>all vertices</b>: {html.escape(self.graph.title)} has no training split."

    def _show_status(self, *, opening: bool = False) -> None:
        self._status.value = status_html(
            self._shown_state,
            self.busy or opening,
            bool(self.error),
            self.elapsed_ms,
            self.run_count,
            self.view,
            self._opened(),
        )

    def _show_error(self, error: Exception | None) -> None:
        self.error = "" if error is None else f"{type(error).__name__}: {error}"
        self.error_panel.value = "" if error is None else error_html(error)
        self.error_panel.layout.display = "none" if error is None else "block"

    def _repr_mimebundle_(self, *args: Any, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(*args, **kwargs)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        if isinstance(data, dict):
            data["text/plain"] = self.describe()
            shown = self._drawn()
            drawn = still.picture(next(iter(shown.values()))) if shown else b""
            if drawn:
                data["image/png"] = base64.b64encode(drawn).decode()
            elif still.asked() and not still.available():
                data["text/plain"] += f"\n{still.HINT}"
        return bundle

    def __repr__(self) -> str:
        return self.describe()

    def describe(self) -> str:
        """The state and what is shown, as plain text: what a page without widgets displays.

        Nothing is drawn for it: of figures behind tabs it names the tabs.
        """
        values = ", ".join(f"{name}={value!r}" for name, value in self.state.items())
        lines = [f"  figure: {_plain(fig.layout.title.text or name)}" for name, fig in self._drawn().items()]
        closed = [title for title, names in self._views_of(self._present).items() if names != self._opened()]
        if closed:
            lines.append(f"  behind tabs: {', '.join(closed)}")
        return "\n".join([f"{type(self).__name__}({values})", *lines])


def _plain(text: str) -> str:
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", text)).split())


def _draw(figures: Mapping[str, go.Figure], name: str) -> go.Figure:
    with lock:
        return figures[name]
