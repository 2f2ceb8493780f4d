"""Feature rows of any vertex, from this rank's part and from the files of its peers' parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnnsample_lab.distributed.sampling.layout import Layout
from gnnsample_lab.features.caching.host import feature_table, words


class PartRows:
    """Reads rows where the parts have them; files are mapped when a row of theirs is first asked for.

    Raises:
        ValueError: this rank's part has no features.
    """

    def __init__(self, layout: Layout) -> None:
        if layout.part.feat is None:
            raise ValueError("source must be parts with features (got some without)")
        self.layout = layout
        self._tables: dict[int, Any] = {layout.part.rank: feature_table(layout.part.feat, "source")}

    @property
    def own(self) -> Any:
        """The rows of this rank's part."""
        return self._tables[self.layout.part.rank]

    def table(self, part: int) -> Any:
        """The rows of a part, in the order of its vertices.

        Raises:
            ValueError: it is another rank's, and there is no folder of parts, or one of others.
        """
        if part not in self._tables:
            if self.layout.folder is None:
                raise ValueError(
                    "folder must name where save_parts wrote the parts: rows of other ranks are read there (got None)"
                )
            found, own = self.layout.opened(part).feat, self.own
            # Rows are copied as words, whatever they hold: those of another type or length would be cut anew.
            if found is None or (found.dtype, found.shape[1:]) != (own.dtype, own.shape[1:]):
                got = "none" if found is None else f"{found.dtype}[n, {found.shape[1]}]"
                raise ValueError(
                    f"folder must hold parts whose features are {own.dtype}[n, {own.shape[1]}], as those of the part "
                    f"given here (got {got} in part {part})"
                )
            self._tables[part] = found
        return self._tables[part]

    def read(self, vertices: np.ndarray, to: np.ndarray, out: np.ndarray) -> None:
        """``out[to[i]]`` becomes the row of ``vertices[i]``; runs without the GIL on one core."""
        from .cpu import copy_rows

        owner = self.layout.partition.owner[vertices]
        for part in np.unique(owner).tolist():
            at = np.flatnonzero(owner == part)
            table, target = words(self.table(part), out)
            copy_rows(table, self.layout.rows(vertices[at], part), to[at], target)
