"""What suites compute from times: ratios, crossovers, targets; with times that the tests make up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gnnsample_lab_bench_conftest import MADE_UP_US, MadeUpSession
