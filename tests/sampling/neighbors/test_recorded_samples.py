"""What a GPU drew, recorded as hashes, drawn again here: both devices give the same sample, bit for bit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gnnsample_lab.bench.configurations import configurations
from gnnsample_lab.bench.verify import cpu_hash

RECORD = Path(__file__).resolve().parents[3] / "data" / "measured" / "sample_hashes.json"
PARTS = 8
CONFIGURATIONS = {config.key: config for config in configurations()}


@pytest.fixture(scope="module")
def record() -> dict:
    assert RECORD.is_file(), f"{RECORD.name} is missing: run `gnnsample-lab bench verify` on a GPU"
    return json.loads(RECORD.read_text(encoding="utf-8"))


def test_every_configuration_was_recorded_on_a_gpu(record):
    assert record["gpu"]
    assert len(CONFIGURATIONS) == len(configurations())  # no two share a key
    assert set(record["hashes"]) == set(CONFIGURATIONS)
    assert len(record["hashes"]) >= 200
    assert all(re.fullmatch("[0-9a-f]{64}", text) for text in record["hashes"].values())


def test_configurations_differ_in_their_samples(record):
    hashes = list(record["hashes"].values())
    assert len(set(hashes)) == len(hashes)


def test_configurations_cover_graphs_rules_and_ways_to_expand():
    options = [dict(config.options) for config in CONFIGURATIONS.values()]
    assert {config.graph for config in CONFIGURATIONS.values()} == {"dead-ends", "hubs", "multi"}
    assert {o["expand"] for o in options} == {"frontier", "new"}
    rules = {(o.get("pick"), o.get("replace", False), o.get("weighted", False)) for o in options}
    assert len(rules) == 6
    fanouts = [k for o in options for k in o["fanouts"]]
    assert -1 in fanouts and max(fanouts) > 32 and max(len(o["fanouts"]) for o in options) >= 5
    assert max(o["seed"] for o in options) > 2**63


@pytest.mark.parametrize("part", range(PARTS))
def test_the_cpu_draws_what_the_gpu_drew(record, part):
    keys = sorted(CONFIGURATIONS)[part::PARTS]
    assert len(keys) >= 200 // PARTS
    different = [key for key in keys if cpu_hash(CONFIGURATIONS[key]) != record["hashes"].get(key)]
    assert not different, f"{len(different)} of {len(keys)} samples differ, the first: {different[0]}"
