"""A fanout per hop, as state and as sliders: what the explorers that sample several hops share."""

from __future__ import annotations

from typing import Any, ClassVar

import traitlets

from ..shell.controls import Slider
from ..shell.explorer import Explorer

MAX_HOPS = 3


class FanoutExplorer(Explorer):
    """An explorer with the state ``hops`` and ``fanout_1`` .. ``fanout_3`` (hop 1 next to the seeds)."""

    max_fanout: ClassVar[int] = 20

    hops = traitlets.Int(3).tag(state=True)
    fanout_1 = traitlets.Int(10).tag(state=True)
    fanout_2 = traitlets.Int(10).tag(state=True)
    fanout_3 = traitlets.Int(10).tag(state=True)

    def hop_sliders(self, label: str) -> list[Slider]:
        """The slider of ``hops``, called ``label``, and one fanout per hop; those not sampled are out of use."""
        fanouts = [
            Slider(
                f"fanout_{hop}",
                f"Fanout of hop {hop}",
                getattr(self, f"fanout_{hop}"),
                min=1,
                max=self.max_fanout,
                disabled=hop > self.hops,
            )
            for hop in range(1, MAX_HOPS + 1)
        ]
        return [Slider("hops", label, self.hops, min=1, max=MAX_HOPS), *fanouts]

    def adapt(self) -> None:
        for hop in range(1, MAX_HOPS + 1):
            self.controls[f"fanout_{hop}"].disabled = hop > self.hops

    def parameters(self, state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "fanouts": [state[f"fanout_{hop}"] for hop in range(1, state["hops"] + 1)]}
