"""Errors of graph loading; each is also a builtin one, so either can be caught."""

from __future__ import annotations

from gnnsample_lab.files import CorruptDataError

__all__ = ["CorruptDataError", "DatasetNotFoundError", "DownloadError", "UnknownDatasetError"]


class UnknownDatasetError(LookupError):
    """A dataset name that is neither in the catalogue nor of the form ``snap:<path or name>``."""


class DatasetNotFoundError(FileNotFoundError):
    """A known dataset that is not on disk, where downloading was not allowed or is not possible."""


class DownloadError(OSError):
    """A download that failed; what has arrived stays beside the target and the next call resumes it."""
