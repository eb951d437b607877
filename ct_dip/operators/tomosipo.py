"""Ray transform by tomosipo: CUDA, for large problems on a GPU (optional extra)."""

import torch
from torch import Tensor

from ct_dip.convert.tomosipo import to_tomosipo
from ct_dip.errors import BackendError
from ct_dip.geometry import Geometry
from ct_dip.operators.ray import RayTransform


class TomosipoRayTransform(RayTransform):
    """``A x`` by ASTRA's 3D CUDA kernels on one slice, without leaving the GPU.

    The kernels interpolate (Joseph's method), so they differ from the other backends by the
    discretisation. Unlike theirs, its adjoint is not exact: ASTRA's 3D back-projection interpolates for
    itself. Fit networks with it, and use ``sparse`` where the adjoint matters. CUDA and float32 only.
    """

    def __init__(self, geometry: Geometry) -> None:
        try:
            import tomosipo
            import tomosipo.torch_support
        except ImportError as error:
            raise BackendError(
                "backend 'tomosipo' is not installed; pip install '.[tomosipo]' in a clone, "
                "or use backend 'sparse'"
            ) from error
        import astra

        if not astra.use_cuda():
            raise BackendError(
                "backend 'tomosipo' needs an ASTRA with CUDA and a GPU, and finds none; "
                "use backend 'sparse' or 'astra'"
            )
        super().__init__(geometry, "joseph")
        self._operator = tomosipo.operator(*to_tomosipo(geometry))

    def _forward(self, x: Tensor) -> Tensor:
        _refuse_float64(x)
        out = x.new_empty(len(x), *self.range_shape)
        for image, sinogram in zip(x, out, strict=True):
            # tomosipo: (slices, rows, columns) → (detector rows, views, detectors)
            sinogram.copy_(self._operator(image[None].contiguous())[0])
        return out

    def _adjoint(self, y: Tensor) -> Tensor:
        _refuse_float64(y)
        out = y.new_empty(len(y), *self.domain_shape)
        for sinogram, image in zip(y, out, strict=True):
            image.copy_(self._operator.T(sinogram[None].contiguous())[0])
        return out


def _refuse_float64(values: Tensor) -> None:
    if values.dtype != torch.float32:
        raise BackendError(f"backend 'tomosipo' computes in float32, got {values.dtype}; use 'sparse'")
