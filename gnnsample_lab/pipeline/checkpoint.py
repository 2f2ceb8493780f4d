"""Where a run that ended early goes on: weights, optimiser, and which mini-batches they have seen."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnsample_lab.checks import shown
from gnnsample_lab.files import replacing
from gnnsample_lab.graph.errors import CorruptDataError

FORMAT, VERSION = "gnnsample_lab checkpoint", 2
_OF_ORDER = ("reorder", "window")
"""Settings that runs of several ranks, and checkpoints of former versions, do not have: they agree with any."""
_CONTENTS = {"settings", "model", "optimizer", "batch_ids", "losses", "generator", "device_generator"}


def check_place(path: Path, name: str) -> None:
    """That a checkpoint can be written as ``path``, which argument ``name`` gave, before anybody trains for it.

    Raises:
        ValueError: it is a folder. PermissionError: nothing can be written there.
    """
    if path.is_dir():
        raise ValueError(f"{name} must be a file (got the folder {str(path)!r})")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise PermissionError(f"{name} {str(path)!r} cannot be written: {error.strerror or error}") from error


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Write ``state`` (tensors, numbers, text, lists and dicts of them) as ``path``, which is whole at all times.

    Raises:
        TypeError: the state of the model or of the optimizer holds something that :func:`load` would not read.
    """
    import torch

    for name in ("model", "optimizer"):
        _check_readable(name, state[name])
    with replacing(path) as file:
        torch.save({"format": FORMAT, "version": VERSION, **state}, file)
        file.flush()
        os.fsync(file.fileno())


def _check_readable(name: str, value: Any, place: str = "") -> None:
    """That ``torch.load(weights_only=True)`` reads ``value``, which lies at ``place`` of the state of ``name``.

    Types are looked at, contents of tensors are not.
    """
    import torch

    kind = type(value)
    if kind in (dict, OrderedDict, Counter):
        for key, held in value.items():
            _check_readable(name, key, f"{place}, among its keys")
            _check_readable(name, held, f"{place}[{key!r}]")
    elif kind in (list, tuple, set):
        for number, held in enumerate(value):
            _check_readable(name, held, f"{place}[{number}]")
    elif kind not in (
        torch.Tensor, torch.nn.Parameter, type(None), bool, int, float, complex, str, bytes, bytearray, torch.Size,
        torch.dtype, torch.device, torch.layout, torch.UntypedStorage, *torch.serialization.get_safe_globals(),
    ):  # fmt: skip
        raise TypeError(
            f"{name} must have a state that checkpoints can hold: tensors, numbers, strings, and lists, tuples, sets "
            f"and dicts of them (got {shown(value)} at state_dict(){place})"
        )


def _check_history(state: Mapping[str, Any]) -> None:
    """That batch ids and losses are what :meth:`.trainer.Trainer.save` writes: tensors of one length.

    Raises:
        ValueError: they are not.
    """
    import torch

    ids, losses = state["batch_ids"], state["losses"]
    if not all(isinstance(found, torch.Tensor) and found.dim() == 1 for found in (ids, losses)):
        raise ValueError("its batch ids and losses are no tensors [steps]")
    if len(ids) != len(losses) or len(ids.unique()) != len(ids):
        raise ValueError(f"it has {len(losses)} losses of {len(ids.unique())} mini-batches")


def load(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a checkpoint that was written under the same settings; nothing but data is unpickled.

    ``reorder`` and ``window`` have to agree where both the checkpoint and ``settings`` have them.

    Raises:
        FileNotFoundError: no such file.
        CorruptDataError: it is no checkpoint.
        ValueError: it was written under other settings; the message names the first.
    """
    import torch

    if not path.is_file():
        raise FileNotFoundError(f"resume: there is no checkpoint {path}")
    try:
        # PyTorch stores checksums and does not look at them.
        if (broken := zipfile.ZipFile(path).testzip()) is not None:
            raise ValueError(f"{broken} is damaged")
        state = torch.load(path, map_location="cpu", weights_only=True)
        if (state["format"], state["version"]) != (FORMAT, VERSION):
            raise ValueError("another format")
        if missing := sorted(_CONTENTS - set(state)):
            raise ValueError(f"it lacks {', '.join(missing)}")
        found = dict(state["settings"])
        _check_history(state)
    except Exception as error:
        raise CorruptDataError(f"{path} is no checkpoint of this library ({error})") from error
    for name, value in settings.items():
        if name in _OF_ORDER and name not in found:
            continue
        if found.get(name) != value:
            raise ValueError(
                f"resume: {path} was written with {name}={found.get(name)!r}, and this run has {name}={value!r}"
            )
    return dict(state)
