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


class Stored(anywidget.AnyWidget):
    """An anywidget whose traits tagged ``live=True`` are mirrored, both ways, in a model of ``store_type``."""

    store_type: ClassVar[type[ipywidgets.Widget]]

    store = traitlets.Instance(ipywidgets.Widget).tag(sync=True, **ipywidgets.widget_serialization)

    def __init__(self, **state: Any) -> None:
        live = [name for name in self.trait_names(live=True) if self.store_type.class_traits().get(name)]
        first = {name: state.get(name, getattr(self, name)) for name in live}
        super().__init__(store=self.store_type(**first), **state)
        for name in live:
            traitlets.link((self, name), (self.store, name))


class ControlStore(ipywidgets.Widget):
    """What a control shows and may show."""

    value = traitlets.Any(None, allow_none=True).tag(sync=True)
    min = traitlets.Int(0).tag(sync=True)
    max = traitlets.Int(100).tag(sync=True)
    options = traitlets.List().tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)


class PlotStore(ipywidgets.Widget):
    """A figure: its traces and its layout as JSON, and what it says to those who cannot see it."""

    data = traitlets.Unicode("[]").tag(sync=True)
    frame = traitlets.Unicode("{}").tag(sync=True)
    alt = traitlets.Unicode("").tag(sync=True)


class CodeStore(ipywidgets.Widget):
    """The code handed over, and whether it is shown."""

    code = traitlets.Unicode("").tag(sync=True)
    shown = traitlets.Bool(False).tag(sync=True)
