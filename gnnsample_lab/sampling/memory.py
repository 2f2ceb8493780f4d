"""Whether samples fit into the memory of the host, asked before they are allocated."""

from __future__ import annotations

from gnnsample_lab.device.host import free_host_bytes

_LITTLE = 2**26
"""Bytes that are taken without asking: the question costs as much as a small run does."""


def check_fits(names: str, count: int, width: int, item_bytes: int, more: int = 0) -> None:
    """Refuse an array ``[count, width]`` in host memory that the host has no room for.

    NumPy's own error comes only where not even the addresses are to be had, and names no argument; what is allocated
    and does not fit ends the process where it is filled.

    Args:
        names: what ``count`` and ``width`` are, "a x b".
        item_bytes: of an entry.
        more: bytes that are taken besides.

    Raises:
        MemoryError: too large; the message has the names and both numbers.
    """
    need = count * width * item_bytes + more
    if need <= _LITTLE:
        return
    free = free_host_bytes()
    if need > free:
        raise MemoryError(
            f"{names} must fit into the free memory of {free / 2**30:,.2f} GiB "
            f"(got {count:,} x {width:,}, {need / 2**30:,.2f} GiB)"
        )
