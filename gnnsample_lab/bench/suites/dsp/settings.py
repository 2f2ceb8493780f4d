"""Tables 2 and 3: the parameters of collective sampling as ours have them, and the graphs beside their twins."""

from __future__ import annotations

import inspect
from typing import Any

from gnnsample_lab.bench.session import Session
from gnnsample_lab.bench.suite import VerificationError
from gnnsample_lab.bench.suites import catalogued

from . import papers

OURS: dict[str, tuple[str, str, str]] = {
    "Seed": ("Sampler", "sample", "seeds"),
    "Scheme": ("LayerSampler", "__init__", "step_size"),
    "Layer": ("Sampler", "__init__", "fanouts"),
    "IsBiased": ("Sampler", "__init__", "weighted"),
    "FanOut": ("Sampler", "__init__", "fanouts"),
}
"""DSP's parameter -> class of ``lab.distributed``, method, argument."""
_NOTES = {
    "Scheme": "Sampler is node-wise, LayerSampler layer-wise, Walker a walk",
    "Layer": "as many as fanouts",
}


def parameters(session: Session) -> dict[str, Any]:
    """Table 2; every argument is looked up where it is named."""
    from gnnsample_lab import distributed

    rows = []
    for published in papers.TABLE2:
        owner, method, argument = OURS[published["parameter"]]
        known = inspect.signature(getattr(getattr(distributed, owner), method)).parameters
        if argument not in known:
            raise VerificationError(f"{owner}.{method} has no argument {argument!r}")
        where = owner if method == "__init__" else f"{owner}.{method}"
        rows.append({
            "parameter": published["parameter"], "ours": f"{where}({argument}=)",
            "type": str(known[argument].annotation).replace("collections.abc.", ""),
            "note": _NOTES.get(published["parameter"], ""),
        })  # fmt: skip
    return {"settings": {}, "verification": {"arguments_found": len(rows)}, "graphs": {}, "rows": rows}


def graphs(session: Session) -> dict[str, Any]:
    """Table 3, from the catalogue: nothing is generated."""
    return catalogued.table(session, papers.GRAPHS, "gb")
