"""One colour per hop, SM, stage and strategy, the same in every figure of every notebook.

The hop colours are those of Okabe and Ito (2008) in an order that keeps neighbours apart, continued with two
of Paul Tol's; they stay distinct under the common forms of colour blindness. Vermilion is kept for what went
wrong.
"""

from __future__ import annotations

import colorsys

HOPS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#882255", "#999933")

#: Tasks that a completion rule lost.
LOST = "#D55E00"

STAGES = {
    "preprocess": "#B9C3D2",
    "kernel": "#2F4B7C",
    "rest": "#E4E8EE",
    "sample": "#332288",
    "reorder": "#DDAA33",
    "extract": "#88CCEE",
    "train": "#44AA99",
    "put": "#999933",
    "get": "#DDCC77",
    "update": "#CC6677",
    "load topology": "#7F7F7F",
    "load cache": "#AAAAAA",
}

STRATEGIES = {
    "block-bsp": "#7F7F7F",
    "edge-bsp": "#999933",
    "turbo-bsp": "#CC6677",
    "bsp": "#88CCEE",
    "fused-static": "#DDAA33",
    "persistent": "#332288",
    "persistent-tile": "#44AA99",
    "grid-barrier": "#117733",
    "captured": "#882255",
    "auto": "#222222",
}

SYSTEMS = {
    "dgl": "#7F7F7F",
    "pyg-cpu": "#999933",
    "gnnadvisor-style": "#CC6677",
    "gnnadvisor": "#CC6677",  # as records of before name it
    "tsota": "#DDAA33",
    "gnnlab": "#56B4E9",
    "fastgl": "#882255",
    "lab": "#117733",
    "pgsampler": "#332288",
    "nextdoor": "#44AA99",
    "dgl-uva": "#BBBBBB",
    "quiver": "#AA4499",
    "dsp-seq": "#EE8866",
    "dsp": "#CC3311",
}

KERNELS = {
    "naive": "#7F7F7F",
    "memory-aware": "#882255",
    "memory-aware-staged": "#AA4499",
    "grouped": "#DDCC77",
    "gnnadvisor-style": "#CC6677",
    "gnnadvisor": "#CC6677",  # as records of before name it
    "library": "#56B4E9",
    "register-tile": "#117733",
}

#: Ways to sample a graph in parts.
METHODS = {
    "pull": "#CC6677",
    "uva": "#7F7F7F",
    "csp": "#DDAA33",
    "csp-async": "#999933",
    "csp-fixed": "#882255",
    "direct": "#56B4E9",
    "direct-cached": "#117733",
}

#: Bytes between ranks, by what they are.
TRAFFIC = {
    "sizes": "#222222",
    "ids": "#332288",
    "records": "#88CCEE",
    "picks": "#44AA99",
    "lists": "#CC6677",
    "weights": "#DDCC77",
    "flags": "#AA4499",
    "padding": "#D5DAE1",
}

#: Memory levels from slow to fast.
LEVELS = {
    "host": "#CC6677",
    "global memory": "#332288",
    "L2": "#56B4E9",
    "shared memory": "#44AA99",
    "registers": "#DDCC77",
}

#: States of a slot of the task queue; what was lost has a colour of its own.
SLOTS = {
    "empty": "#E9ECF1",
    "claimed, still empty": "#CC79A7",
    "written, waiting": "#E69F00",
    "being worked on": "#0072B2",
    "done": "#B5CFC4",
    "lost": LOST,
    "never queued": "#882255",
}

MEASURED, MODELLED = "#1F2937", "#E07A1F"

INK, MUTED, FAINT, GRID, PAPER = "#1F2937", "#6B7280", "#CBD2DC", "#E9ECF1", "#FFFFFF"

#: Writing on coloured ground, which keeps its colour in the dark theme.
ON_LIGHT, ON_DARK = "#1B2430", "#FDFDFD"

#: From an idle SM to a full one; monotone in lightness, so it survives printing in grey.
ACTIVITY = ("#F7F8FA", "#CFE1F2", "#84BCDB", "#3787C0", "#105BA4", "#08306B")


def hop_color(hop: int) -> str:
    """Colour of a hop (counted from 0); repeats after seven hops."""
    return HOPS[hop % len(HOPS)]


def hop_name(hop: int) -> str:
    """ "hop 1" for hop 0: figures count from 1, as the papers do."""
    return f"hop {hop + 1}"


def strategy_color(strategy: str) -> str:
    """Colour of a strategy; grey for one that is not known."""
    return STRATEGIES.get(strategy, MUTED)


def system_color(system: str) -> str:
    """Colour of a training system; grey for one that is not known."""
    return SYSTEMS.get(system, MUTED)


def kernel_color(kernel: str) -> str:
    """Colour of an aggregation kernel; grey for one that is not known."""
    return KERNELS.get(kernel, MUTED)


def method_color(method: str) -> str:
    """Colour of a way to sample a graph in parts; grey for one that is not known."""
    return METHODS.get(method, MUTED)


def level_color(level: str) -> str:
    """Colour of a memory level, also where more is said ("L2 cache"); grey for one that is not known."""
    return next((color for name, color in LEVELS.items() if level.startswith(name)), MUTED)


def sm_color(sm: int, num_sms: int) -> str:
    """Colour of a streaming multiprocessor: evenly spaced hues of equal lightness."""
    return f"hsl({360.0 * (sm % max(num_sms, 1)) / max(num_sms, 1):.0f}, 55%, 45%)"


def text_on(color: str) -> str:
    """What can be read on a ``#rrggbb`` ground, on light and on dark pages."""
    light, light_when_dark = (luminance(shade) > 0.3 for shade in (color, DARK.get(color.lower(), color)))
    if light == light_when_dark:
        return ON_LIGHT if light else ON_DARK
    return INK if light else PAPER  # which change places as the ground does


def translucent(color: str, alpha: float) -> str:
    """A ``#rrggbb`` colour as ``rgba(...)``."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {alpha:g})"


def _brightened(color: str) -> str:
    """The same hue, light enough for a dark page and still dark enough for :data:`ON_DARK` to be read on it."""
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    while luminance(color) < 0.16:
        lightness += 0.01
        rgb = colorsys.hls_to_rgb(hue, lightness, min(saturation, 0.7))
        color = "#" + "".join(f"{round(255 * part):02X}" for part in rgb)
    return color


def luminance(color: str) -> float:
    """Relative luminance of a ``#rrggbb`` colour, from 0 to 1."""
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2


def _for_dark_pages() -> dict[str, str]:
    """What replaces a colour of a figure on a dark page, by the colour in lower case."""
    groups = (STAGES, STRATEGIES, SYSTEMS, KERNELS, METHODS, TRAFFIC, LEVELS)
    named = [*HOPS, LOST, MODELLED, *(color for group in groups for color in group.values())]
    found = {color: _brightened(color) for color in named}
    found |= {
        "#222222": "#DDE1E7", "white": "#212121", PAPER: "#212121", INK: "#E6E9EE", MUTED: "#A3ABB8",
        FAINT: "#5B6470", GRID: "#3A3F47",
        # Light grounds of cells without content.
        "#F5F7FA": "#2A2D32", "#F3F5F8": "#2F3338", "#D5DAE1": "#575E68", "#DDE1E7": "#4A5058", "#BFC6D1": "#6B7280",
        "#CFE1F2": "#22405E", "#B5CFC4": "#3D5A4F",
    }  # fmt: skip
    # A scale has to stay one: from the page's own ground to bright.
    found |= dict(
        zip(ACTIVITY, ("#2A2D32", "#22405E", "#2A6196", "#4A90C8", "#84BCE8", "#D6EBFB"), strict=True)
    )
    return {color.lower(): new for color, new in found.items() if new != color}


DARK = _for_dark_pages()
