"""The lines of HTML that an explorer says about itself."""

from __future__ import annotations

import html
import json
import traceback
from collections.abc import Sequence
from typing import Any


def status_html(
    state: dict[str, Any],
    busy: bool,
    failed: bool,
    elapsed_ms: float,
    run_count: int,
    view: str = "",
    opened: Sequence[str] = (),
) -> str:
    """Busy or not, and how the last run went.

    The data attributes tell programs that watch the page which state the figures belong to, and which panels the open
    ``view`` has.
    """
    panels = html.escape(json.dumps(list(opened)))
    text = "running …" if busy else f"{'failed' if failed else 'ready'} · {elapsed_ms:.0f} ms"
    return (
        f'<div class="gs-status" role="status" data-busy="{int(busy)}" data-run="{run_count}" '
        f'data-failed="{int(failed)}" data-view="{html.escape(view)}" data-opened="{panels}" '
        f'data-state="{html.escape(json.dumps(state))}">'
        f'<span class="gs-dot"></span>{text} · run {run_count}</div>'
    )


def error_html(error: Exception) -> str:
    """What went wrong, and where, folded away."""
    trail = "".join(traceback.format_exception(error))
    return (
        f'<div class="gs-error" role="alert"><b>{html.escape(type(error).__name__)}</b>: '
        f"{html.escape(str(error))}<br>The figures below still show the last state that worked."
        f"<details><summary>Where it happened</summary><pre>{html.escape(trail)}</pre></details></div>"
    )
