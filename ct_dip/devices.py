"""Which device torch works on, and with how many threads."""

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from ct_dip.errors import InputError

if TYPE_CHECKING:
    import torch

_ONE_THREAD_BELOW = 128**2  # pixels
_lock = threading.Lock()
_blocks: list[int] = []  # of `use_threads`: what the first of them found, and a count for each


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
        raise InputError(f"device {name!r}: torch finds no {device.type} here; use device cpu")
    return device


def free_memory(device: "torch.device") -> int | None:
    """Return the free bytes of a device with a memory of its own; ``None`` if it does not say."""
    import torch

    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else None


def pick_threads(threads: Literal["auto"] | int, shape: tuple[int, int]) -> int:
    """Return how many threads torch works with: as many as asked for; ``auto`` is one for images below 128².

    There a second thread gains little on an idle machine, and on a busy one threads wait for each other at
    the end of every small operation. Larger images get all threads that torch has.
    """
    import torch

    if threads != "auto":
        return threads
    return 1 if math.prod(shape) < _ONE_THREAD_BELOW else torch.get_num_threads()


@contextlib.contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Let torch work with ``count`` threads in this block, and with as many as before after it.

    Part of torch's setting belongs to the whole process. So of blocks that run side by side in several
    threads of Python, the last one that ends restores what the first one found.
    """
    import torch

    with _lock:
        if not _blocks:
            _blocks.append(torch.get_num_threads())
        _blocks.append(count)
        torch.set_num_threads(count)
    try:
        yield
    finally:
        with _lock:
            _blocks.pop()
            if len(_blocks) == 1:
                torch.set_num_threads(_blocks.pop())


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
