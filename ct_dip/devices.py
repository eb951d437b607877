"""Which device torch works on."""

from typing import TYPE_CHECKING

from ct_dip.errors import InputError

if TYPE_CHECKING:
    import torch


def pick_device(name: str = "auto") -> "torch.device":
    """``auto`` is CUDA where torch finds it, the CPU otherwise; or any name that torch knows."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device {name!r} is not known; use auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {name!r}: torch finds no CUDA here; use --device cpu")
    return device
