"""The way of one Python function to both devices, as a figure."""

from __future__ import annotations

import plotly.graph_objects as go

from gnnsample_lab.figures import palette
from gnnsample_lab.figures.sketch import Sketch, drawn
from gnnsample_lab.figures.style import finish

# (x, y, text, colour of the border, dashed) of the boxes, and which lead to which.
_BOXES = (
    (1.0, 1.0, "<b>next</b><br>Python,<br>as you wrote it", palette.INK),
    (3.2, 1.0, "<b>lab_next(ctx, step)</b><br>a plain function", palette.INK),
    (5.4, 2.0, "<b>Numba</b><br>LLVM for this CPU", palette.HOPS[2]),
    (7.8, 2.0, "<b>loop over samples</b><br>machine code", palette.HOPS[2]),
    (5.4, 1.0, "<b>numba-cuda</b><br>LTO-IR of next", palette.HOPS[0]),
    (5.4, 0.0, "<b>NVRTC</b><br>LTO-IR of<br>the kernels", palette.HOPS[0]),
    (7.8, 0.5, "<b>nvJitLink</b><br>inlines one<br>into the other", palette.HOPS[0]),
    (10.0, 0.5, "<b>kernel</b><br>one cubin, no calls", palette.HOPS[0]),
    (3.2, 0.0, "<b>engine's kernels</b><br>CUDA C++", palette.HOPS[0]),
)
_WAYS = ((0, 1), (1, 2), (2, 3), (1, 4), (4, 6), (8, 5), (5, 6), (6, 7))


@drawn
def device_route() -> go.Figure:
    """The way of one Python function to both devices, as boxes and arrows."""
    fig = Sketch()
    half = (0.94, 0.34)
    for start, end in _WAYS:
        (x0, y0), (x1, y1) = _BOXES[start][:2], _BOXES[end][:2]
        fig.add_annotation(
            x=x1 - half[0], y=y1, ax=x0 + half[0], ay=y0, xref="x", yref="y", axref="x", ayref="y", text="",
            showarrow=True, arrowhead=2, arrowwidth=1.6, arrowcolor=palette.MUTED,
        )  # fmt: skip
    for x, y, text, color in _BOXES:
        fig.add_shape(
            type="rect", x0=x - half[0], x1=x + half[0], y0=y - half[1], y1=y + half[1],
            line={"color": color, "width": 1.6}, fillcolor=palette.translucent(color, 0.07),
        )  # fmt: skip
        fig.add_annotation(x=x, y=y, text=text, showarrow=False, font={"size": 12, "color": palette.INK})
    for y, text, color in ((2.0, "CPU", palette.HOPS[2]), (0.5, "GPU", palette.HOPS[0])):
        fig.add_annotation(
            x=11.2,
            y=y,
            text=f"<b>{text}</b>",
            showarrow=False,
            font={"size": 15, "color": color},
            xanchor="left",
        )
    finish(fig, "One definition, two devices", "what happens at the first run of an application", height=380)
    fig.update_layout(showlegend=False, margin={"l": 12, "r": 12, "b": 12, "t": 86})
    fig.update_xaxes(visible=False, range=[0, 11.9])
    fig.update_yaxes(visible=False, range=[-0.5, 2.5])
    return fig
