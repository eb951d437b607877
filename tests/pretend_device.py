"""An accelerator that is not there: tensors that say ``pretend:0`` and keep their numbers on the CPU.

Every operation is checked before it runs. What a GPU refuses is refused here, with `DeviceError`: operands on
two devices, unless the one on the CPU is a single number or an index; generators of the CPU that fill tensors
of the device. (Conversion to NumPy torch refuses by itself.) What a GPU waits for is counted.

    with pretend_device() as traffic:
        x = torch.ones(3, device="pretend")
        float(x.sum())
    assert traffic.waits == 1
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("pretend")  # once per process: torch has one such name to give
DEVICE = torch.device("pretend", 0)
_CPU = torch.device("cpu")
_INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")
_WAITING = ("nonzero", "equal", "masked_select")  # the size or the value of the result is needed on the host


class DeviceError(RuntimeError):
    """What a GPU would have refused."""


@dataclass
class Traffic:
    """How often numbers went from one memory to the other, and how often the host had to wait for them."""

    to_device: int = 0
    to_host: int = 0
    waits: int = 0  # for a value or a size, beside those for a copy
    largest_to_host: int = 0  # numbers in one copy


class PretendTensor(Tensor):
    """A tensor of the device; ``held`` has its numbers. A sparse one passes for a strided one."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> "PretendTensor":
        layout: dict[str, Any] = {}
        if held.layout is torch.strided:
            layout = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        wrapper = Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=DEVICE, **layout)
        wrapper.held = held
        return wrapper

    def __repr__(self) -> str:  # type: ignore[override]
        return f"PretendTensor({self.held!r})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {}, Traffic())  # outside of `pretend_device`: nobody counts


class _Mode(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # which would import the compiler, and tell it at every operation to stay away

    def __init__(self, traffic: Traffic) -> None:
        super().__init__()
        self.traffic = traffic

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {}, self.traffic)


@contextlib.contextmanager
def pretend_device() -> Iterator[Traffic]:
    """Let the device exist in this block."""
    traffic, lifted = Traffic(), torch._C._only_lift_cpu_tensors()
    # Autograd's own thread for a device would not know the mode.
    with torch.autograd.set_multithreading_enabled(False), _Mode(traffic):
        torch._C._set_only_lift_cpu_tensors(True)  # so that torch.tensor(..., device=) is a copy
        try:
            yield traffic
        finally:
            torch._C._set_only_lift_cpu_tensors(lifted)


def _run(func: Any, args: Any, kwargs: dict[str, Any], traffic: Traffic) -> Any:
    """Check an operation, count what it moves, and let the CPU compute it."""
    name = func._schema.name.removeprefix("aten::")
    tensors: list[Tensor] = []
    _each((*args, *kwargs.values()), tensors.append)
    here = [t for t in tensors if isinstance(t, PretendTensor)]
    asked = kwargs.get("device")
    on_device = bool(here) if asked is None else torch.device(asked).type == DEVICE.type
    if name in ("_to_copy", "copy_"):
        # From the second operand to the first, or from the only one to a new tensor.
        source = isinstance(tensors[-1], PretendTensor) if tensors else False
        on_device = isinstance(args[0], PretendTensor) if name == "copy_" else on_device
        traffic.to_device += on_device and not source
        if source and not on_device:
            traffic.to_host += 1
            traffic.largest_to_host = max(traffic.largest_to_host, tensors[-1].numel())
    else:
        _check(func, name, args, tensors, on_device)
        traffic.waits += bool(here) and name in (*_WAITING, "_local_scalar_dense")
        if name in _INDEXING and on_device:
            indices = [i for i in args[1] if i is not None]
            traffic.to_device += sum(not isinstance(i, PretendTensor) for i in indices)
            traffic.waits += sum(i.dtype is torch.bool for i in indices)
    if asked is not None:
        kwargs = kwargs | {"device": _CPU}
    result = func(*_each(args, _held), **{key: _each(value, _held) for key, value in kwargs.items()})
    if not on_device:
        return result
    if torch.Tag.inplace_view in func.tags:  # the shape that the wrapper shows changes as well
        with no_dispatch():
            func(*args, **kwargs)
    known = {id(t.held): t for t in here} if func._schema.is_mutable else {}  # what was changed in place
    return _each(result, lambda t: known[id(t)] if id(t) in known else PretendTensor(t))


def _held(tensor: Tensor) -> Tensor:
    return tensor.held if isinstance(tensor, PretendTensor) else tensor


def _each(values: Any, function: Callable[[Tensor], Any]) -> Any:
    """Replace every tensor among values by what a function makes of it."""
    if isinstance(values, Tensor):
        return function(values)
    if isinstance(values, tuple | list):
        return type(values)(_each(value, function) for value in values)
    return values


def _check(func: Any, name: str, args: Any, tensors: list[Tensor], on_device: bool) -> None:
    if on_device and torch.Tag.nondeterministic_seeded in func.tags:
        raise DeviceError(f"{name}: draw random numbers with a generator of the CPU, and copy them")
    strangers = [t for t in tensors if not isinstance(t, PretendTensor)]
    if len(strangers) in (0, len(tensors)):
        return
    own = isinstance(args[0], PretendTensor)
    if name in _INDEXING:
        allowed = own and (len(args) < 3 or isinstance(args[2], PretendTensor) or args[2].dim() == 0)
    else:
        allowed = torch.Tag.pointwise in func.tags and all(t.dim() == 0 for t in strangers)
        allowed &= own or not func._schema.is_mutable
    if not allowed:
        where = ", ".join(f"{tuple(t.shape)} on {t.device}" for t in tensors)
        raise DeviceError(f"{name}: operands on two devices: {where}")
