"""Why a suite ends without numbers."""

from __future__ import annotations


class VerificationError(RuntimeError):
    """A strategy returned another sample than the CPU twin, so nothing of it is timed."""


class Unavailable(RuntimeError):
    """The suite needs a GPU or a package that is not there."""
