"""Suites of benchmarks, a folder per paper."""
