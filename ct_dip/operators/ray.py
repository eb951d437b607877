"""What all ray transforms of our geometries have in common: what they are of, and so who they are."""

import hashlib

import torch

from ct_dip.geometry import Geometry
from ct_dip.operators.linear_map import LinearMap


class RayTransform(LinearMap):
    """A ray transform ``A`` of a geometry, (rows, columns) → (views, detectors).

    Args:
        geometry: the scan.
        kernel: how a ray weighs the pixels that it meets.
    """

    def __init__(self, geometry: Geometry, kernel: str) -> None:
        self.geometry, self.kernel = geometry, kernel
        self.domain_shape, self.range_shape = geometry.domain_shape, geometry.range_shape

    @property
    def name(self) -> str:
        """Class, beam and kernel."""
        return f"{type(self).__name__}({self.geometry.kind}, {self.kernel})"


def transform_digest(transform: LinearMap, device: torch.device | str = "cpu") -> str:
    """Hash what decides the numbers of a ray transform: stages may be mixed where it is the same.

    Ours are known by name, since on a GPU the last bits of a product change from call to call. A map from
    elsewhere is known by what it does to a random image.

    Args:
        device: that a map from elsewhere works on.
    """
    digest = hashlib.sha256(type(transform).__qualname__.encode())
    if isinstance(transform, RayTransform):
        digest.update(f"{transform.geometry.digest} {transform.kernel}".encode())
    else:
        probe = torch.rand(transform.domain_shape, generator=torch.Generator().manual_seed(0))
        digest.update(transform(probe.to(device)).cpu().numpy().tobytes())
    return digest.hexdigest()
