"""Degree tables and clustering by degree, made from the few numbers that papers print about a graph.

A paper prints the number of vertices, the mean and the maximum of the degrees, at times their median or Gini
coefficient, and one average clustering coefficient. A twin needs a whole degree sequence and the clustering of
every degree. A *family* is a law of degrees with two free numbers: a location, solved so that the mean is met,
and a spread, solved so that one more printed number is met: the Gini coefficient, the wedges, the median or else
the maximum.

Tables are integers and add up exactly. They are made once and stored, so logarithms are allowed here; generators
read the stored integers and never call this module.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from gnnsample_lab.graph.twins.plan import bin_of

DegreeTable = list[list[int]]
"""``[[degree, count], ...]`` with ascending degrees and positive counts."""

FamilyName = Literal["lognormal", "power_law", "double_pareto"]

MILLION = 1_000_000
_STEPS_BEYOND = 64
"""A law is followed past the maximum in so many steps, to count the vertices that it would put there."""


# --- Laws: logarithms of the probabilities of degrees, up to a constant ---------------------------------------


def _lognormal(logarithms: Sequence[float], location: float, spread: float) -> list[float]:
    return [-0.5 * ((log - location) / spread) ** 2 - log for log in logarithms]


def _power_law(logarithms: Sequence[float], location: float, spread: float) -> list[float]:
    return [-spread * log - math.exp(log - location) for log in logarithms]


def _double_pareto(logarithms: Sequence[float], location: float, spread: float) -> list[float]:
    return [(location - log) * (_RISE if log < location else 1 + 1 / spread) for log in logarithms]


_RISE = 0.75
"""Exponent of a double Pareto law below its break, where the law falls slowly."""


class _Family(NamedTuple):
    law: Callable[[Sequence[float], float, float], list[float]]
    locations: tuple[float, float]
    spreads: tuple[float, float]


_FAMILIES = {
    "lognormal": _Family(_lognormal, (-80.0, 40.0), (0.05, 6.0)),
    "power_law": _Family(_power_law, (-7.0, 40.0), (-2.0, 3.5)),
    "double_pareto": _Family(_double_pareto, (-6.0, 40.0), (0.1, 4.0)),
}


# --- Tables ----------------------------------------------------------------------------------------------------


def degree_table(
    family: FamilyName,
    num_nodes: int,
    mean: float,
    maximum: int,
    *,
    minimum: int = 1,
    isolated: int = 0,
    median: int | None = None,
    gini: float | None = None,
    wedges: float | None = None,
    total: int | None = None,
    distinct: int = 300,
) -> DegreeTable:
    """A degree table of a family that meets published facts.

    The location of the law is solved so that the mean is met. Its spread is solved so that ``gini``, ``wedges`` or
    ``median`` is met, one of the three; where none is given, so that the law, were it not cut off, would put one
    vertex at ``maximum`` or above: then the published maximum is the largest of ``num_nodes`` draws.

    Args:
        family: ``"lognormal"``; ``"power_law"``, a power of the degree with an exponential cut-off; or
            ``"double_pareto"``, a slow fall up to a break and a power of the degree from there on.
        num_nodes: Vertices in all, those without edges included.
        mean: Mean degree over all vertices.
        maximum: The largest degree; the table ends there, with one vertex or more.
        minimum: The smallest degree of a vertex that has edges.
        isolated: Vertices of degree 0.
        median: Median degree over all vertices, where it is known.
        gini: Gini coefficient of the degrees over all vertices, where it is known.
        wedges: Pairs of edges that meet at a vertex, where their number is known.
        total: Sum of all degrees, which the table meets exactly; by default the even number next to
            ``num_nodes * mean``.
        distinct: About how many different degrees the table may hold.

    Returns:
        ``[[degree, count], ...]``, ascending; counts sum to ``num_nodes``, degrees times counts to ``total``.

    Raises:
        ValueError: The facts contradict each other, or no member of the family meets them.
    """
    if family not in _FAMILIES:
        raise ValueError(f"Unknown family {family!r}: one of {', '.join(map(repr, _FAMILIES))}.")
    if not 1 <= minimum < maximum or not 0 <= isolated < num_nodes or distinct < 8:
        raise ValueError("Needs 1 <= minimum < maximum, 0 <= isolated < num_nodes and distinct >= 8.")
    if sum(fact is not None for fact in (median, gini, wedges)) > 1:
        raise ValueError("The spread of a law meets one fact: median, gini or wedges, not several.")
    connected = num_nodes - isolated
    total = 2 * round(num_nodes * mean / 2) if total is None else total
    if total % 2:
        raise ValueError(f"The degrees of a graph sum to an even number, not to {total}.")
    if not minimum * (connected - 1) + maximum <= total <= maximum * connected:
        raise ValueError(f"{connected} degrees from {minimum} to {maximum} cannot sum to {total}.")

    law = _FAMILIES[family]
    degrees = _kept_degrees(minimum, maximum, distinct)
    grid = _Grid(degrees, connected - 1, (total - maximum) / (connected - 1))

    def excess(spread: float) -> float | None:
        """How far the law of a spread lies above the fact that decides it; None where its mean cannot be met."""
        location = grid.location(law, spread)
        if location is None:
            return None
        expected = grid.expected(law, location, spread)
        if gini is not None:
            return _gini(degrees, expected, isolated) - gini
        if wedges is not None:
            return sum(d * (d - 1) / 2 * e for d, e in zip(degrees, expected, strict=True)) / wedges - 1
        if median is not None:
            return _below(degrees, expected, median, isolated) - num_nodes / 2
        return math.log(max(grid.vertices_from_maximum(law, location, spread), 1e-300))

    spread = _first_root(excess, *law.spreads)
    location = None if spread is None else grid.location(law, spread)
    if spread is None or location is None:
        facts = {"gini": gini, "wedges": wedges, "median": median}
        fact = next(
            (f"{name} {value}" for name, value in facts.items() if value is not None), "such a largest draw"
        )
        raise ValueError(
            f"No {family} law over degrees {minimum} to {maximum} has a mean of {total / connected:.6g} and {fact}."
        )
    table = _rounded(degrees, grid.expected(law, location, spread), connected, total)
    return [[0, isolated], *table] if isolated else table


def table_of(
    degrees: Sequence[int], expected: Sequence[float], num_nodes: int, total: int, distinct: int = 300
) -> DegreeTable:
    """A degree table of expected counts that adds up exactly.

    Args:
        degrees: Ascending degrees, all positive.
        expected: Expected vertices at each.
        num_nodes: Vertices that the counts of the table sum to.
        total: Even sum of all degrees.
        distinct: About how many different degrees the table may hold; each degree goes to the kept ones on its two
            sides, in shares that keep its mean.
    """
    kept = _kept_degrees(degrees[0], degrees[-1], distinct)
    counts, place = [0.0] * len(kept), 0
    for degree, count in zip(degrees, expected, strict=True):
        while place + 2 < len(kept) and kept[place + 1] <= degree:
            place += 1
        share = (degree - kept[place]) / (kept[place + 1] - kept[place])
        counts[place] += count * (1 - share)
        counts[place + 1] += count * share
    return _rounded(kept, counts, num_nodes, total)


def compressed(table: Sequence[Sequence[int]], distinct: int = 300) -> DegreeTable:
    """A degree table with fewer different degrees and the same sums.

    Each degree goes to the kept degrees on its two sides, in shares that keep its mean.

    Args:
        table: ``[[degree, count], ...]``, ascending.
        distinct: About how many different degrees to keep.

    Raises:
        ValueError: The table is empty or not ascending.
    """
    if not table or any(low[0] >= high[0] for low, high in itertools.pairwise(table)):
        raise ValueError("A degree table holds ascending degrees, one or more.")
    isolated = table[0][1] if table[0][0] == 0 else 0
    rest = [row for row in table if row[0] > 0]
    if len(rest) <= distinct:
        return [list(row) for row in table]
    degrees = _kept_degrees(rest[0][0], rest[-1][0], distinct)
    expected = [0.0] * len(degrees)
    place = 0
    for degree, count in rest:
        while place + 2 < len(degrees) and degrees[place + 1] <= degree:
            place += 1
        share = (degree - degrees[place]) / (degrees[place + 1] - degrees[place])
        expected[place] += count * (1 - share)
        expected[place + 1] += count * share
    ends = sum(degree * count for degree, count in rest)
    kept = _rounded(degrees, expected, sum(count for _, count in rest), ends)
    return [[0, isolated], *kept] if isolated else kept


def table_gini(table: Sequence[Sequence[int]]) -> float:
    """Gini coefficient of the degrees of a table: 0 where all are equal, towards 1 where few hold all edges."""
    return _gini([row[0] for row in table], [float(row[1]) for row in table], 0)


def table_top_share(table: Sequence[Sequence[int]], share: float = 0.1) -> float:
    """Share of all edge ends that the vertices of the highest degrees hold.

    Args:
        table: ``[[degree, count], ...]``, ascending.
        share: Share of the vertices, those of the highest degrees.
    """
    vertices = share * sum(count for _, count in table)
    held = 0.0
    for degree, count in reversed(table):
        taken = min(vertices, count)
        held += degree * taken
        vertices -= taken
    return held / sum(degree * count for degree, count in table)


def table_median(table: Sequence[Sequence[int]]) -> int:
    """The lower median of the degrees of a table."""
    half = (sum(count for _, count in table) + 1) // 2
    for degree, count in table:
        half -= count
        if half <= 0:
            return degree
    raise ValueError("A degree table holds one vertex or more.")


def table_wedges(table: Sequence[Sequence[int]]) -> int:
    """Pairs of edges that meet at a vertex: the sum of d (d - 1) / 2, which catalogues of networks print."""
    return sum(count * degree * (degree - 1) // 2 for degree, count in table)


# --- Clustering ------------------------------------------------------------------------------------------------


def global_clustering(closed_share: float) -> float:
    """Global clustering from the share of closed triangles that SNAP prints.

    SNAP divides triangles by triangles and open wedges; the global coefficient, three times the triangles by all
    wedges.

    Args:
        closed_share: "Fraction of closed triangles" of a page of SNAP.
    """
    return 3 * closed_share / (1 + 2 * closed_share)


def clustering_by_degree(
    table: Sequence[Sequence[int]],
    average: float,
    *,
    overall: float | None = None,
    exponent: float = 0.6,
    flat: int = 32,
) -> list[list[int]]:
    """Clustering of each bin of degrees, made from an average clustering coefficient.

    The clustering spectrum of real networks is flat at low degrees, declines, and ends in a power of the degree
    (Stegehuis, van der Hofstad, Janssen, van Leeuwaarden, Phys. Rev. E 96, 042309, 2017). Here: flat up to
    ``flat``, then a fall with ``exponent``, at most 1 everywhere. Where the global coefficient is known too, it
    decides the exponent. The defaults are what five real graphs show: Epinions, ogbl-ddi and MUSAE's facebook,
    git and twitch-DE fall slowly up to degree 32 or so, and beyond it with exponents of 0.3, 0.1, 0.6, 0.7 and
    0.5. Dense graphs, as ogbl-ddi, hardly fall at all.

    Args:
        table: ``[[degree, count], ...]`` of the graph.
        average: Mean of the local clustering coefficients over all vertices, where vertices with fewer than two
            neighbours count 0, as Watts and Strogatz, SNAP and the Open Graph Benchmark define it.
        overall: Global clustering coefficient, three times the triangles by all wedges, where it is known.
        exponent: How fast clustering falls with the degree, where ``overall`` is not given.
        flat: The degree from which it falls.

    Returns:
        ``[[bin, clustering in millionths], ...]`` of the bins that hold vertices, bins as in :func:`.plan.bin_of`.

    Raises:
        ValueError: The average is outside 0 to 1, or higher than vertices with two neighbours or more allow; or
            no exponent from 0 to 3 meets ``overall`` with it.
    """
    vertices = sum(count for _, count in table)
    bins: dict[int, list[int]] = {}
    places = bin_of([degree for degree, _ in table]).tolist()
    for place, (degree, count) in zip(places, table, strict=True):
        members = bins.setdefault(place, [0, 0, 0])
        members[0] += count
        members[1] += count * degree
        members[2] += count * degree * (degree - 1)
    able = sum(members[0] for place, members in bins.items() if place >= 2)
    if not 0 <= average <= able / vertices:
        raise ValueError(
            f"An average clustering of {average} is out of reach: {able} of {vertices} vertices have two or more "
            f"neighbours."
        )

    def spectrum(power: float) -> dict[int, float]:
        """Clustering by bin for an exponent, with the average met."""
        shape = {
            place: 0.0 if place < 2 else max(members[1] / members[0] / flat, 1.0) ** -power
            for place, members in bins.items()
        }

        def by_bin(scale: float) -> dict[int, float]:
            return {place: min(1.0, scale * value) for place, value in shape.items()}

        def excess(scale: float) -> float:
            return sum(bins[place][0] * value for place, value in by_bin(scale).items()) / vertices - average

        highest = 1 / min((value for value in shape.values() if value), default=1.0)
        return by_bin(_root(excess, 0.0, highest, -average, excess(highest)) if average else 0.0)

    if overall is not None:
        pairs = sum(members[2] for members in bins.values())

        def missing(power: float) -> float:
            return overall - sum(bins[place][2] * value for place, value in spectrum(power).items()) / pairs

        low, high = 0.0, 3.0
        if not missing(low) < 0 <= missing(high):
            raise ValueError(
                f"No exponent from 0 to 3 gives an average clustering of {average} and {overall} overall."
            )
        exponent = _root(missing, low, high, missing(low), missing(high))
    return [[place, round(value * MILLION)] for place, value in sorted(spectrum(exponent).items())]


# --- Inside ----------------------------------------------------------------------------------------------------


def _kept_degrees(minimum: int, maximum: int, distinct: int) -> list[int]:
    """All degrees where they are few; else every small one, then degrees that grow by a constant factor."""
    if maximum - minimum < distinct:
        return list(range(minimum, maximum + 1))
    degrees = [minimum]
    while degrees[-1] < maximum:
        left = distinct - len(degrees)
        factor = (maximum / degrees[-1]) ** (1 / max(left, 1))
        degrees.append(min(maximum, max(degrees[-1] + 1, round(degrees[-1] * factor))))
    return degrees


def _widths(degrees: Sequence[float]) -> list[float]:
    """How many integers each kept degree stands for: half of the way to its neighbours on both sides."""
    edges = [degrees[0] - 0.5]
    edges += [(low + high) / 2 for low, high in itertools.pairwise(degrees)]
    edges.append(degrees[-1] + 0.5)
    return [high - low for low, high in itertools.pairwise(edges)]


class _Grid:
    """Kept degrees, how many integers each stands for, and the same past the maximum.

    One vertex of the maximum stands aside from the law, whatever the law says: a graph whose largest hub is far
    off, as git's of MUSAE, has the wedges of that hub and the mean of the others.

    Args:
        degrees: Kept degrees, ascending.
        vertices: Vertices that follow the law: all but the one aside and those without edges.
        mean: Their mean degree.
    """

    def __init__(self, degrees: list[int], vertices: int, mean: float) -> None:
        self.degrees = degrees
        self.vertices = vertices
        self.mean = mean
        self.logarithms = [math.log(degree) for degree in degrees]
        self.widths = _widths(degrees)
        self.beyond = [degrees[-1] * 2 ** (step / 4) for step in range(_STEPS_BEYOND + 1)]
        self.beyond_widths = _widths(self.beyond)

    def expected(self, family: _Family, location: float, spread: float) -> list[float]:
        """Expected vertices at each kept degree, the one at the maximum included."""
        counts = self._by_law(family, location, spread)
        counts[-1] += 1
        return counts

    def _by_law(self, family: _Family, location: float, spread: float) -> list[float]:
        logs = family.law(self.logarithms, location, spread)
        peak = max(logs)
        weights = [math.exp(log - peak) * width for log, width in zip(logs, self.widths, strict=True)]
        whole = sum(weights)
        return [weight / whole * self.vertices for weight in weights]

    def mean_of(self, family: _Family, location: float, spread: float) -> float:
        """Mean degree of a law."""
        counts = self._by_law(family, location, spread)
        return sum(d * c for d, c in zip(self.degrees, counts, strict=True)) / self.vertices

    def location(self, family: _Family, spread: float) -> float | None:
        """The location at which a law meets the mean; None where no location does."""
        low, high = family.locations
        below = self.mean_of(family, low, spread) / self.mean - 1
        above = self.mean_of(family, high, spread) / self.mean - 1
        if not below < 0 <= above:
            return None
        return _root(lambda x: self.mean_of(family, x, spread) / self.mean - 1, low, high, below, above)

    def vertices_from_maximum(self, family: _Family, location: float, spread: float) -> float:
        """Expected vertices at the maximum or above, were the law not cut off."""
        inside = family.law(self.logarithms, location, spread)
        outside = family.law([math.log(degree) for degree in self.beyond], location, spread)
        peak = max(max(inside), max(outside))
        kept = sum(math.exp(log - peak) * width for log, width in zip(inside, self.widths, strict=True))
        above = sum(
            math.exp(log - peak) * width for log, width in zip(outside, self.beyond_widths, strict=True)
        )
        return self.vertices * above / (kept + above)


def _first_root(function: Callable[[float], float | None], low: float, high: float) -> float | None:
    """The lowest argument at which a function turns from negative to positive; None where it never does.

    The function may have no value, None, at low and at high arguments; its last places on both sides are looked at.
    """
    steps = 32
    places: list[tuple[float, float]] = []
    previous: tuple[float, float | None] = low, None
    for step in range(steps + 1):
        argument = low + (high - low) * step / steps
        value = function(argument)
        if step and (value is None) != (previous[1] is None):
            inside, outside = (previous[0], argument) if value is None else (argument, previous[0])
            places.append(_last_place(function, inside, outside))
        if value is not None:
            places.append((argument, value))
        previous = argument, value
    for (left, below), (right, above) in itertools.pairwise(places):
        if below < 0 <= above:
            return _root(lambda x: function(x) or 0.0, left, right, below, above)
    return None


def _last_place(
    function: Callable[[float], float | None], inside: float, outside: float
) -> tuple[float, float]:
    """The argument nearest to ``outside`` at which a function that has a value ``inside`` has one, and the value."""
    value = function(inside) or 0.0
    for _ in range(40):
        middle = (inside + outside) / 2
        found = function(middle)
        if found is None:
            outside = middle
        else:
            inside, value = middle, found
    return inside, value


def _root(function: Callable[[float], float], low: float, high: float, below: float, above: float) -> float:
    """Where a function crosses zero between ``low``, where it is ``below`` < 0, and ``high``, ``above`` >= 0.

    A line through both ends tells where to look next, and the end that stays counts half from then on; every
    third step takes the middle, so the stretch shrinks whatever the function's shape.
    """
    for step in range(90):
        if above == 0 or high - low <= 1e-13 * max(1.0, abs(low), abs(high)):
            break
        middle = (low + high) / 2 if step % 3 == 2 else high - above * (high - low) / (above - below)
        middle = middle if low < middle < high else (low + high) / 2
        value = function(middle)
        if abs(value) < 1e-12:
            return middle
        if value < 0:
            low, below, above = middle, value, above / 2
        else:
            high, above, below = middle, value, below / 2
    return high


def _gini(degrees: Sequence[int], counts: Sequence[float], isolated: int) -> float:
    """Gini coefficient of ascending degrees with their counts and of more vertices without edges."""
    vertices = sum(counts) + isolated
    ends = sum(degree * count for degree, count in zip(degrees, counts, strict=True))
    seen, area = float(isolated), 0.0
    for degree, count in zip(degrees, counts, strict=True):
        area += degree * count * (2 * seen + count)
        seen += count
    return area / (vertices * ends) - 1


def _below(degrees: Sequence[int], counts: Sequence[float], median: int, isolated: int) -> float:
    """Vertices below a median, and half of those at it."""
    at = sum(count for degree, count in zip(degrees, counts, strict=True) if degree == median)
    return isolated + at / 2 + sum(c for d, c in zip(degrees, counts, strict=True) if d < median)


def _rounded(degrees: list[int], expected: list[float], vertices: int, total: int) -> DegreeTable:
    """A table of counts close to expected ones that sum to ``vertices`` and, times the degrees, to ``total``.

    From the highest degree down, each count rounds what is expected plus the edge ends that higher degrees left
    over, so the ends agree at every degree. What is left at the bottom is settled at the two degrees whose counts
    change least by it, and by one vertex between the two where their distance does not divide the rest.
    """
    counts = [0] * len(degrees)
    left_over = 0.0
    for place in range(len(degrees) - 1, -1, -1):
        ends = expected[place] * degrees[place] + left_over
        counts[place] = max(round(ends / degrees[place]), int(place == len(degrees) - 1))
        left_over = ends - counts[place] * degrees[place]
    table = dict(zip(degrees, counts, strict=True))
    missing = vertices - sum(counts)
    missing_ends = total - sum(degree * count for degree, count in table.items())
    if missing or missing_ends:
        _settle(table, missing, missing_ends, keep=degrees[-1])
    return [[degree, table[degree]] for degree in sorted(table) if table[degree]]


def _settle(table: dict[int, int], missing: int, missing_ends: int, keep: int) -> None:
    """Add vertices and edge ends to a table, few or below zero, and leave a vertex at degree ``keep``."""
    best: tuple[float, int, int, int, int, int] | None = None
    held = [(degree, count - (degree == keep)) for degree, count in table.items() if count > (degree == keep)]
    for place, (low, low_count) in enumerate(held):
        for high, high_count in held[place + 1 :]:
            upper, between = divmod(missing_ends - low * missing, high - low)
            lower = missing - upper - (between > 0)
            if low_count + lower >= 0 and high_count + upper >= 0:
                change = max(abs(lower) / low_count, abs(upper) / high_count)
                best = min(
                    best or (math.inf, 0, 0, 0, 0, 0), (change, low, lower, high, upper, low + between)
                )
    if best is None:
        raise ValueError("No such table adds up exactly: allow more different degrees.")
    _, low, lower, high, upper, extra = best
    table[low] += lower
    table[high] += upper
    if extra != low:
        table[extra] = table.get(extra, 0) + 1
