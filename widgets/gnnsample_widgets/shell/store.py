"""Where the changing state of our widgets lives: plain ipywidgets models beside the anywidgets that draw them.

An anywidget's model gives its script two seconds to load. On a page that is busier than that it then refuses, for
good, every message that the kernel sends it (0.11: each awaits a promise that has been rejected), and the widget
shows its first state for ever. A model of ipywidgets itself has no such gate. So the anywidget brings the script and
what never changes, and the rest reaches the script through the store.
"""

from __future__ import annotations

from typing import Any, ClassVar

import anywidget
import ipywidgets
import traitlets


def close_all(widget: ipywidgets.Widget) -> None:
    """Close a widget and all that it holds: children, layouts, styles and stores, but nothing that others share."""
    waiting, met = [widget], {id(widget)}
    while waiting:
        one = waiting.pop()
        for name in one.trait_names(sync=True):
            value = one._trait_values.get(name)
            for part in value if isinstance(value, (list, tuple)) else [value]:
                if (
                    isinstance(part, ipywidgets.Widget)
                    and not isinstance(part, Shared)
                    and id(part) not in met
                ):
                    met.add(id(part))
                    waiting.append(part)
        one.unobserve_all()
        ipywidgets.Widget.close(one)


class Shared(ipywidgets.Widget):
    """A widget that others hold in common; it stays when one of them is closed."""


class Stored(anywidget.AnyWidget):
    """An anywidget whose traits tagged ``live=True`` are mirrored, both ways, in a model of ``store_type``."""

    store_type: ClassVar[type[ipywidgets.Widget]]

    store = traitlets.Instance(ipywidgets.Widget).tag(sync=True, **ipywidgets.widget_serialization)

    def __init__(self, **state: Any) -> None:
        live = [name for name in self.trait_names(live=True) if self.store_type.class_traits().get(name)]
        first = {name: state.get(name, getattr(self, name)) for name in live}
        store = self.store_type(**first)
        try:
            super().__init__(store=store, **state)
        except BaseException:
            close_all(store)
            raise
        for name in live:
            traitlets.link((self, name), (self.store, name))


class ControlStore(ipywidgets.Widget):
    """What a control shows and may show."""

    value = traitlets.Any(None, allow_none=True).tag(sync=True)
    min = traitlets.Int(0).tag(sync=True)
    max = traitlets.Int(100).tag(sync=True)
    options = traitlets.List().tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)
    instead = traitlets.Any(None, allow_none=True).tag(sync=True)


class PlotStore(ipywidgets.Widget):
    """A figure: its traces and its layout as JSON, what it says to those who cannot see it, whether it is finished, and
    its last click."""

    data = traitlets.Unicode("[]").tag(sync=True)
    frame = traitlets.Unicode("{}").tag(sync=True)
    alt = traitlets.Unicode("").tag(sync=True)
    unfinished = traitlets.Unicode("").tag(sync=True)
    clicked = traitlets.Dict().tag(sync=True)


class CodeStore(ipywidgets.Widget):
    """The code handed over, and whether it is shown."""

    code = traitlets.Unicode("").tag(sync=True)
    shown = traitlets.Bool(False).tag(sync=True)
