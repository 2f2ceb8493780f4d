"""What the rows of DSP say of their records."""

from __future__ import annotations

from tests.notebooks.recorded import Record, Said, rows, short, whole
from tests.readme.rows import Phrases, cards, row


@row(
    "DSP", "figures 6 and 12", "dsp-utilisation", "dsp-accuracy",
    given=["4 and 8 modelled", "figure 12, Products x 0.25", "paper over 1.5 x with 8", "papers100M x 0.02"],
)  # fmt: skip
def pipeline(busy: Record, accuracy: Record) -> Phrases:
    gained = [each["speedup"] for each in rows(busy, system="dsp")]
    alone, overlapped = (
        [
            abs(each["error_percent"])
            for each in busy["rows"]
            if each.get("stages") == fed and each["error_percent"]
        ]
        for fed in ("stages alone", "stages as they overlapped")
    )
    differs = accuracy["settings"]["largest_difference_of_a_loss"]
    return [
        f"1 and {cards(busy, 2)}",
        f"{' and '.join(short(each) for each in gained)} x",
        Said("reversed, three stages that launch from Python", max(gained) < 1.05 and min(gained) < 1),
        f"the schedule model is {' and '.join(map(whole, alone))} % too fast",
        f"as they overlapped it is within {short(max(overlapped))} %",
        f"figure 9, {cards(accuracy, 2)}",
        Said("the same losses", differs < 1e-3),
    ]
