"""Ray transform by ODL, for users who have an ODL operator or want to check against one."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ct_dip.convert.odl import from_odl_image, to_odl, to_odl_image
from ct_dip.errors import BackendError
from ct_dip.geometry import FanBeam, Geometry
from ct_dip.operators.assembly import choose_kernel
from ct_dip.operators.astra import AstraRayTransform
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.ray import RayTransform


class OdlRayTransform(LinearMap):
    """Any linear ODL operator between a 2D image space and a sinogram space.

    Images are turned from our (rows, columns) to ODL's (x, y) and back. ODL's adjoint belongs to the
    inner products of its spaces; with constant weights ``c_X`` and ``c_Y`` the plain transpose is
    ``Aᵀ = (c_X / c_Y) A*``. Precision and exactness of the adjoint are those of the operator.

    Args:
        operator: for example an ``odl.applications.tomo.RayTransform``.
        options: passed on to every call of the operator, for example ``astra_proj_type``.
    """

    def __init__(self, operator: Any, **options: Any) -> None:
        _refuse_ignored_offset(operator)
        self.operator, self.options = operator, options
        columns, rows = operator.domain.shape
        self.domain_shape, self.range_shape = (rows, columns), tuple(operator.range.shape)
        self._scale = float(operator.domain.weighting.const) / float(operator.range.weighting.const)

    def _forward(self, x: Tensor) -> Tensor:
        return _apply(self.operator, to_odl_image(x), self.options)

    def _adjoint(self, y: Tensor) -> Tensor:
        return from_odl_image(_apply(self.operator.adjoint, y, self.options)) * self._scale


class OdlGeometryRayTransform(RayTransform):
    """The ODL ray transform of one of our geometries. Views are sorted for ODL and put back.

    Its numbers come from ODL's ``astra_cpu`` where that is able: in float32, and for detectors and
    kernels that it does not ignore or refuse. Elsewhere ODL runs on `CtDipImpl`.
    """

    def __init__(self, geometry: Geometry, *, kernel: str = "auto") -> None:
        super().__init__(geometry, choose_kernel(geometry, kernel))
        self._order = torch.as_tensor(np.argsort(geometry.angles))
        self._sorted = geometry.select_views(self._order.numpy())
        self._by_dtype = {torch.float32: self._build(torch.float32)}

    def _build(self, dtype: torch.dtype) -> OdlRayTransform:
        from odl.applications import tomo

        space, geometry = to_odl(self._sorted, dtype=str(dtype).removeprefix("torch."))
        if isinstance(self.geometry, FanBeam):
            able = self.kernel == "line"
        else:
            able = self.geometry.detector_offset == self.geometry.center_of_rotation
        if able and dtype == torch.float32:
            suffix = "_fanflat" if isinstance(self.geometry, FanBeam) else ""
            operator = tomo.RayTransform(space, geometry, impl="astra_cpu")
            return OdlRayTransform(operator, astra_proj_type=self.kernel + suffix)
        impl = CtDipImpl(AstraRayTransform(self._sorted, kernel=self.kernel), space)
        return OdlRayTransform(tomo.RayTransform(space, geometry, impl=impl))

    def _operator(self, dtype: torch.dtype) -> OdlRayTransform:
        if dtype not in self._by_dtype:
            self._by_dtype[dtype] = self._build(dtype)
        return self._by_dtype[dtype]

    def _forward(self, x: Tensor) -> Tensor:
        return self._operator(x.dtype)._forward(x)[:, self._order.argsort()]

    def _adjoint(self, y: Tensor) -> Tensor:
        return self._operator(y.dtype)._adjoint(y[:, self._order])


class CtDipImpl:
    """One of our ray transforms as a backend (``impl``) of ``odl.applications.tomo.RayTransform``.

    Brings ODL what its own CPU backend lacks: float64, shifted detectors of parallel beams, and, with
    a `SparseRayTransform`, speed. The adjoint is that of ODL's weighted spaces.
    """

    def __init__(self, transform: LinearMap, image_space: Any) -> None:
        self.transform, self.image_space = transform, image_space

    def call_forward(self, x: Any, out: Any = None, **_: Any) -> Any:
        """Map an ODL image element to a sinogram."""
        image = from_odl_image(torch.as_tensor(np.ascontiguousarray(x.asarray())))
        return _deliver(self.transform(image), out)

    def call_backward(self, x: Any, out: Any = None, **_: Any) -> Any:
        """Map an ODL sinogram element to an image."""
        image = self.transform.T(torch.as_tensor(np.ascontiguousarray(x.asarray())))
        weight = float(x.space.weighting.const) / float(self.image_space.weighting.const)
        return _deliver(to_odl_image(image) * weight, out)


def _refuse_ignored_offset(operator: Any) -> None:
    # ODL 1.0 builds ASTRA's 'parallel' geometry, which has no place for a detector offset.
    from odl.applications import tomo

    geometry = getattr(operator, "geometry", None)
    if getattr(operator, "impl", None) != "astra_cpu":
        return
    if isinstance(geometry, tomo.Parallel2dGeometry) and abs(geometry.det_partition.mid_pt[0]) > 1e-9:
        raise BackendError(
            f"ODL's astra_cpu ignores the detector offset {geometry.det_partition.mid_pt[0]:g} mm of a "
            "parallel beam; convert with ct_dip.convert.odl.from_odl and use backend 'sparse' or 'odl'"
        )


def _deliver(values: Tensor, out: Any) -> Any:
    array = np.ascontiguousarray(values.numpy())
    if out is None:
        return array
    out[:] = array
    return out


def _apply(operator: Any, batch: Tensor, options: dict[str, Any]) -> Tensor:
    arrays = batch.detach().cpu().numpy().astype(operator.domain.dtype_identifier, copy=False)
    results = np.empty((len(arrays), *operator.range.shape), arrays.dtype)
    for array, result in zip(arrays, results, strict=True):
        element = operator.domain.element(np.ascontiguousarray(array))
        result[...] = operator(element, **options).asarray()
    return torch.from_numpy(results).to(batch)
