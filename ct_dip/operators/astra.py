"""Ray transform without a matrix: ASTRA's CPU projectors, for problems whose matrix does not fit."""

import weakref
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ct_dip.geometry import Geometry
from ct_dip.operators.assembly import choose_kernel, make_projector, matrix_blocks
from ct_dip.operators.ray import RayTransform


class AstraRayTransform(RayTransform):
    """``A x`` by ASTRA, one projection after another.

    ASTRA's CPU projectors use the same weights in both directions, so the adjoint is exact. Its CUDA
    back-projector does not, which is why it is not offered here: on a GPU take ``sparse`` or
    ``tomosipo``. ASTRA itself computes in float32. In float64 the weights are streamed, one block of
    views at a time, and applied in double precision: slow, never large, exact.

    Tensors on another device are brought to the CPU and back.
    """

    def __init__(self, geometry: Geometry, *, kernel: str = "auto") -> None:
        super().__init__(geometry, choose_kernel(geometry, kernel))

    def _forward(self, x: Tensor) -> Tensor:
        images = x.detach().cpu().numpy()
        sinograms = np.empty((len(images), *self.range_shape), images.dtype)
        if x.dtype == torch.float64:
            for views, rows in self._float64_blocks():
                part = images.reshape(len(images), -1) @ rows.T
                sinograms[:, views] = part.reshape(len(images), -1, self.range_shape[1])
        else:
            for image, sinogram in zip(images, sinograms, strict=True):
                sinogram[...] = self._projector.FP(image)
        return torch.from_numpy(sinograms).to(x.device)

    def _adjoint(self, y: Tensor) -> Tensor:
        sinograms = y.detach().cpu().numpy()
        images = np.zeros((len(sinograms), *self.domain_shape), sinograms.dtype)
        if y.dtype == torch.float64:
            for views, rows in self._float64_blocks():
                part = sinograms[:, views].reshape(len(sinograms), -1) @ rows
                images += part.reshape(images.shape)
        else:
            for sinogram, image in zip(sinograms, images, strict=True):
                image[...] = self._projector.BP(sinogram)
        return torch.from_numpy(images).to(y.device)

    def _float64_blocks(self) -> Iterator[tuple[slice, Any]]:
        for views, rows in matrix_blocks(self.geometry, self.kernel):
            yield views, rows.astype(np.float64)

    @cached_property
    def _projector(self) -> Any:
        import astra

        number = make_projector(self.geometry, self.kernel)
        weakref.finalize(self, astra.projector.delete, number)
        return astra.OpTomo(number)
