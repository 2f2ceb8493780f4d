"""Degree tables and clustering by degree from published numbers: exact sums, the facts met, sensible shapes."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from gnnsample_lab.graph.twins import families
from gnnsample_lab.graph.twins.families import clustering_by_degree, compressed, degree_table
from gnnsample_lab.graph.twins.plan import bin_of

FAMILIES = ("lognormal", "power_law", "double_pareto")
PATENTS = {"num_nodes": 3_774_768, "mean": 2 * 16_518_947 / 3_774_768, "maximum": 793}


def nodes(table: list[list[int]]) -> int:
    return sum(count for _, count in table)


def ends(table: list[list[int]]) -> int:
    return sum(degree * count for degree, count in table)


def assert_table(table: list[list[int]], num_nodes: int, total: int) -> None:
    assert all(type(number) is int for row in table for number in row)
    assert all(low[0] < high[0] for low, high in itertools.pairwise(table))
    assert all(count > 0 for _, count in table)
    assert (nodes(table), ends(table)) == (num_nodes, total)


class TestBins:
    def test_first_degrees_have_bins_of_their_own(self):
        assert [bin_of(degree) for degree in range(9)] == list(range(9))

    @pytest.mark.parametrize(
        ("degree", "bin_"), [(11, 8), (12, 9), (15, 9), (16, 10), (22, 10), (23, 11), (3_000_000, 45)]
    )
    def test_two_bins_an_octave(self, degree, bin_):
        assert bin_of(degree) == bin_

    def test_bins_ascend_without_gaps(self):
        assert set(np.diff(bin_of(np.arange(1 << 16))).tolist()) == {0, 1}

    def test_the_last_bin_takes_the_rest(self):
        assert bin_of(2**30) == 62
        assert bin_of(2**31) == 63
        assert bin_of(2**62) == 63


class TestExactSums:
    @pytest.mark.parametrize("family", FAMILIES)
    @pytest.mark.parametrize("seed", range(6))
    def test_odd_sizes(self, family, seed):
        num_nodes, maximum = 997 + 1361 * seed, 61 + 97 * seed
        total = 2 * (3 * num_nodes + seed)
        table = degree_table(family, num_nodes, total / num_nodes, maximum, total=total)
        assert_table(table, num_nodes, total)
        assert table[-1][0] == maximum

    def test_without_a_total_it_is_the_even_number_next_to_the_mean(self):
        table = degree_table("lognormal", 1001, 7.003, 100)
        assert_table(table, 1001, 7010)

    def test_a_large_graph_keeps_few_degrees(self):
        table = degree_table("lognormal", 41_652_230, 57.74, 2_997_487)
        assert_table(table, 41_652_230, 2 * round(41_652_230 * 57.74 / 2))
        assert len(table) <= 305
        assert len(json.dumps(table)) < 8000

    def test_isolated_vertices(self):
        table = degree_table("lognormal", 10_000, 6.0, 300, isolated=1234)
        assert table[0] == [0, 1234]
        assert_table(table, 10_000, 60_000)

    def test_minimum(self):
        table = degree_table("double_pareto", 10_000, 12.0, 500, minimum=4)
        assert table[0][0] >= 4
        assert_table(table, 10_000, 120_000)

    def test_hubs_that_are_few_and_far_between_add_up_too(self):
        # Degrees near the mean are 8 apart here: neighbouring kept degrees alone cannot settle one missing vertex.
        table = degree_table("lognormal", 4267, 2 * 1_067_911 / 4267, 2234, total=2 * 1_067_911)
        assert_table(table, 4267, 2 * 1_067_911)

    def test_one_table_a_question(self):
        first, second = (degree_table("power_law", 5000, 9.0, 400) for _ in range(2))
        assert first == second


class TestFacts:
    """cit-Patents: its catalogue prints mean, maximum, Gini coefficient and wedges, so each can be checked."""

    @pytest.mark.parametrize("family", FAMILIES)
    def test_gini(self, family):
        table = degree_table(family, **PATENTS, gini=0.516)
        assert families.table_gini(table) == pytest.approx(0.516, abs=1e-3)

    @pytest.mark.parametrize("family", FAMILIES)
    def test_wedges(self, family):
        table = degree_table(family, **PATENTS, wedges=335_781_273)
        assert families.table_wedges(table) == pytest.approx(335_781_273, rel=2e-3)

    @pytest.mark.parametrize("family", FAMILIES)
    def test_median(self, family):
        table = degree_table(family, 22_470, 15.2, 709, median=7)
        assert families.table_median(table) == 7

    @pytest.mark.parametrize("family", FAMILIES)
    def test_the_maximum_alone_is_the_largest_of_so_many_draws(self, family):
        table = degree_table(family, 100_000, 10.0, 2000)
        above_half = sum(count for degree, count in table if degree > 1000)
        assert 1 <= above_half <= 20

    def test_a_lognormal_law_predicts_what_the_catalogue_prints(self):
        table = degree_table("lognormal", **PATENTS)
        assert families.table_gini(table) == pytest.approx(0.516, abs=0.03)
        assert families.table_wedges(table) == pytest.approx(335_781_273, rel=0.15)

    def test_a_law_at_the_edge_of_what_its_family_can_do(self):
        # Spreads beyond 1.59 cannot have this mean, and those that put a vertex at the maximum lie just below.
        table = degree_table("power_law", 9498, 32.2463676563487, 4259)
        assert_table(table, 9498, 306_276)
        assert families.table_gini(table) > 0.8

    @pytest.mark.parametrize("family", FAMILIES)
    def test_a_higher_gini_gives_the_hubs_more(self, family):
        tables = [degree_table(family, 50_000, 12.0, 3000, gini=gini) for gini in (0.55, 0.65, 0.75)]
        shares = [families.table_top_share(table) for table in tables]
        medians = [families.table_median(table) for table in tables]
        assert shares == sorted(shares) and shares[0] < shares[-1]
        assert medians == sorted(medians, reverse=True) and medians[0] > medians[-1]

    def test_a_higher_maximum_spreads_degrees(self):
        ginis = [
            families.table_gini(degree_table("lognormal", 50_000, 12.0, top)) for top in (200, 800, 3200)
        ]
        assert ginis == sorted(ginis) and ginis[0] < ginis[-1] - 0.1

    def test_no_holes_below_the_mode(self):
        table = degree_table("lognormal", 500_000, 12.0, 3000)
        assert [degree for degree, _ in table[:30]] == list(range(1, 31))


class TestContradictions:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"mean": 500.0}, "cannot sum"),
            ({"total": 6001}, "even number"),
            ({"gini": 0.999}, "gini 0.999"),
            ({"gini": 0.5, "median": 3}, "one fact"),
            ({"minimum": 100}, "minimum < maximum"),
            ({"isolated": 1000}, "isolated < num_nodes"),
            ({"family": "normal"}, "Unknown family 'normal'"),
        ],
    )
    def test_are_told(self, changes, words):
        facts = {"family": "lognormal", "num_nodes": 1000, "mean": 6.0, "maximum": 100} | changes
        with pytest.raises(ValueError, match=words):
            degree_table(**facts)


class TestCompressed:
    def test_sums_and_shape_stay(self):
        table = [[degree, 1 + 10_000_000 // degree**2] for degree in range(1, 5000)]
        small = compressed(table, distinct=200)
        assert_table(small, nodes(table), ends(table))
        assert len(small) <= 205
        assert small[-1][0] == 4999
        assert families.table_gini(small) == pytest.approx(families.table_gini(table), abs=2e-3)
        assert families.table_median(small) == families.table_median(table)

    def test_isolated_vertices_stay(self):
        table = [[0, 77], *([degree, 3] for degree in range(2, 1000))]
        small = compressed(table, distinct=50)
        assert small[0] == [0, 77]
        assert_table(small, nodes(table), ends(table))

    def test_a_short_table_is_left_alone(self):
        assert compressed([[1, 5], [4, 2]]) == [[1, 5], [4, 2]]

    @pytest.mark.parametrize("table", [[], [[3, 1], [2, 1]], [[3, 1], [3, 1]]])
    def test_bad_tables(self, table):
        with pytest.raises(ValueError, match="ascending"):
            compressed(table)


class TestMeasures:
    def test_by_hand(self):
        table = [[1, 6], [2, 3], [10, 1]]
        # Degrees 1 1 1 1 1 1 2 2 2 10: the sum of |a - b| over pairs of vertices is 18 + 54 + 24.
        assert families.table_gini(table) == pytest.approx((18 + 54 + 24) * 2 / (2 * 10 * 22))
        assert families.table_top_share(table, 0.1) == pytest.approx(10 / 22)
        assert families.table_top_share(table, 0.3) == pytest.approx(14 / 22)
        assert families.table_median(table) == 1
        assert families.table_wedges(table) == 3 + 45


@pytest.fixture(scope="module")
def table():
    return degree_table("lognormal", 50_000, 12.0, 3000)


class TestClustering:
    def mean(self, table, spectrum):
        by_bin = dict(spectrum)
        return sum(count * by_bin[bin_of(degree)] for degree, count in table) / nodes(table) / 1e6

    def overall(self, table, spectrum):
        by_bin = dict(spectrum)
        pairs = sum(count * degree * (degree - 1) for degree, count in table)
        closed = sum(count * degree * (degree - 1) * by_bin[bin_of(degree)] for degree, count in table)
        return closed / pairs / 1e6

    @pytest.mark.parametrize("average", [0.0, 0.085, 0.226, 0.411, 0.7])
    def test_the_average_is_met(self, table, average):
        spectrum = clustering_by_degree(table, average)
        assert self.mean(table, spectrum) == pytest.approx(average, abs=1e-6)
        assert all(0 <= value <= 1_000_000 and type(value) is int for _, value in spectrum)

    def test_flat_first_then_falling(self, table):
        spectrum = dict(clustering_by_degree(table, 0.2))
        flat = [spectrum[bin_of(degree)] for degree in range(2, 32)]
        assert len(set(flat)) == 1
        falling = [value for place, value in sorted(spectrum.items()) if place >= bin_of(32)]
        assert falling == sorted(falling, reverse=True) and falling[-1] < falling[0] / 5

    def test_vertices_with_one_neighbour_close_nothing(self, table):
        assert dict(clustering_by_degree(table, 0.2))[1] == 0

    @pytest.mark.parametrize("overall", [0.02, 0.1, 0.2])
    def test_a_known_global_coefficient_decides_the_exponent(self, table, overall):
        spectrum = clustering_by_degree(table, 0.25, overall=overall)
        assert self.mean(table, spectrum) == pytest.approx(0.25, abs=1e-6)
        assert self.overall(table, spectrum) == pytest.approx(overall, abs=1e-5)

    def test_the_cap_at_one_keeps_the_average(self, table):
        spectrum = clustering_by_degree(table, 0.7, exponent=2.0, flat=2)
        assert max(value for _, value in spectrum) == 1_000_000
        assert self.mean(table, spectrum) == pytest.approx(0.7, abs=1e-6)

    def test_out_of_reach(self, table):
        with pytest.raises(ValueError, match="out of reach"):
            clustering_by_degree([[1, 90], [2, 10]], 0.2)
        with pytest.raises(ValueError, match="No exponent"):
            clustering_by_degree(table, 0.25, overall=0.9)

    def test_closed_triangles_of_snap(self):
        # soc-LiveJournal1: SNAP prints 0.04266, another catalogue a global coefficient of 0.117916.
        assert families.global_clustering(0.04266) == pytest.approx(0.117916, abs=2e-5)
