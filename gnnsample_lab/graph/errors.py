"""Errors of graph loading; each is also a builtin one, so either can be caught."""

from __future__ import annotations


class UnknownDatasetError(LookupError):
    """A dataset name that is neither in the catalogue nor of the form ``snap:<path or name>``."""


class DatasetNotFoundError(FileNotFoundError):
    """A known dataset that is not on disk, where downloading was not allowed or is not possible."""


class CorruptDataError(ValueError, OSError):
    """Damaged or incomplete files: a cut-off archive, a gzip member that ends early, bad contents."""


class DownloadError(OSError):
    """A download that failed; what has arrived stays beside the target and the next call resumes it."""
