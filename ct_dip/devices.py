"""Which device torch works on, and with how many threads."""

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ct_dip.errors import InputError

if TYPE_CHECKING:
    import torch

_ONE_THREAD_BELOW = 128**2  # pixels


def pick_device(name: str = "auto") -> "torch.device":
    """``auto`` is CUDA where torch finds it, the CPU otherwise; or any name that torch knows."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        module = torch.get_device_module(device)
    except RuntimeError as error:
        raise InputError(f"device {name!r} is not known; use auto, cpu or cuda") from error
    if not module.is_available():
        raise InputError(f"device {name!r}: torch finds no {device.type} here; use --device cpu")
    return device


def free_memory(device: "torch.device") -> int | None:
    """Return the free bytes of a device with a memory of its own; ``None`` if it does not say."""
    import torch

    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else None


def pick_threads(threads: int | None, shape: tuple[int, int]) -> int:
    """Return how many threads torch works with: as many as asked for, else one for images below 128².

    There a second thread gains little on an idle machine, and on a busy one threads wait for each other at
    the end of every small operation. Larger images get all threads that torch has.
    """
    import torch

    return threads or (1 if math.prod(shape) < _ONE_THREAD_BELOW else torch.get_num_threads())


@contextlib.contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Let torch work with ``count`` threads in this block, and with as many as before after it."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def full_float32() -> Iterator[None]:
    """Keep all digits of float32 in this block: by default CUDA's convolutions round to TF32's ten bits."""
    import torch

    switches: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [switch.allow_tf32 for switch in switches]
    for switch in switches:
        switch.allow_tf32 = False
    try:
        yield
    finally:
        for switch, allowed in zip(switches, before, strict=True):
            switch.allow_tf32 = allowed
