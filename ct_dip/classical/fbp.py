"""Filtered back-projection for parallel and flat fan beams, any list of views.

Own code, because ASTRA's CPU version knows only equally spaced parallel views and ODL's scales fan
beams ad hoc; the tests compare with ASTRA where it can.
"""

import math
from typing import overload

import numpy as np
import torch
from torch import Tensor

from ct_dip.arrays import Floats
from ct_dip.classical.filters import ramp_response
from ct_dip.classical.redundancy import fan_redundancy, one_sided_share, view_weights
from ct_dip.data.scan import Scan
from ct_dip.errors import InputError
from ct_dip.geometry import FanBeam, Geometry


@overload
def fbp(sinogram: Tensor, geometry: Geometry, *, filter: str = ..., cutoff: float = ...) -> Tensor: ...
@overload
def fbp(
    sinogram: Scan | Floats, geometry: Geometry | None = None, *, filter: str = ..., cutoff: float = ...
) -> Floats: ...
def fbp(
    sinogram: Tensor | Scan | Floats,
    geometry: Geometry | None = None,
    *,
    filter: str = "ram-lak",
    cutoff: float = 1.0,
) -> Tensor | Floats:
    """Filter every view along the detector, then smear it back over the image.

    Parallel: ``f(x) = Σ_θ w_θ q_θ(x·u)`` with ``q_θ = ramp * p_θ`` and Σ w_θ = π.
    Fan: weight each ray by the Jacobian of fan coordinates and by its redundancy, filter, and
    back-project with ``1/U²``, where U is the distance from the source along v over the distance
    source-axis (Kak & Slaney, section 3.4; rotation axis off the central ray: Gullberg et al. 1986).

    Args:
        sinogram: (views, detectors), line integrals, as a tensor or an array; or a scan, with its geometry.
        filter: ``ram-lak``, ``shepp-logan``, ``cosine``, ``hamming`` or ``hann``.
        cutoff: end of the filter's window, as a fraction of the Nyquist frequency.

    Returns:
        (rows, columns), 1/mm; a tensor for a tensor, else an array.
    """
    if isinstance(sinogram, Scan):
        geometry, sinogram = geometry or sinogram.geometry, sinogram.sinogram
    if geometry is None:
        raise InputError("a sinogram alone has no geometry; write fbp(sinogram, geometry) or fbp(scan)")
    if not isinstance(sinogram, Tensor):
        tensor = torch.as_tensor(np.array(sinogram))
        return fbp(tensor, geometry, filter=filter, cutoff=cutoff).numpy()
    positions = geometry.detector_positions
    if isinstance(geometry, FanBeam):
        # Work on the virtual detector through the rotation axis.
        positions = positions / geometry.magnification
        source, c = geometry.source_origin, geometry.center_of_rotation
        views = view_weights(geometry.angles, 2 * math.pi)
        share = fan_redundancy(geometry, views.start, views.arc)
        share = share * (source + c * positions / source) / np.hypot(source, positions)
    else:
        # A line is seen from both sides, so views are counted on half a turn. Only a detector that misses
        # one side needs the second half.
        views, share = view_weights(geometry.angles, math.pi), np.ones(geometry.detectors)
        full_turn = view_weights(geometry.angles, 2 * math.pi)
        if geometry.sees_one_side and full_turn.arc >= 2 * math.pi - 1e-9:
            views, share = full_turn, one_sided_share(geometry)
    sinogram = sinogram * torch.as_tensor(views.weights[:, None] * share).to(sinogram)
    first = float(positions[0])
    if geometry.sees_one_side:
        # A filtered view does not end where the detector does: go on as far as on the longer side.
        low, high = geometry.reach
        missing = math.ceil(abs(high + low) / geometry.origin_pitch)
        before, after = (missing, 0) if -low < high else (0, missing)
        sinogram = torch.nn.functional.pad(sinogram, (before, after))
        first -= before * geometry.origin_pitch
    filtered = _filter(sinogram, geometry.origin_pitch, filter, cutoff)
    return _back_project(filtered, geometry, first)


def _filter(sinogram: Tensor, pitch: float, name: str, cutoff: float) -> Tensor:
    detectors = sinogram.shape[-1]
    length = 2 ** math.ceil(math.log2(max(64, 2 * detectors)))  # room for a linear convolution
    response = torch.as_tensor(ramp_response(length, pitch, name, cutoff)).to(sinogram)
    spectrum = torch.fft.rfft(sinogram, n=length, dim=-1) * response
    return torch.fft.irfft(spectrum, n=length, dim=-1)[..., :detectors]


def _back_project(filtered: Tensor, geometry: Geometry, first: float) -> Tensor:
    """Sum over views of the filtered value where each pixel projects, linearly interpolated."""
    x, y = (torch.as_tensor(axis).to(filtered) for axis in geometry.volume.pixel_centers())
    axes = np.concatenate([geometry.detector_axes, geometry.beam_axes], axis=1)
    c, pitch, last = geometry.center_of_rotation, geometry.origin_pitch, filtered.shape[1] - 1
    image = filtered.new_zeros(geometry.domain_shape)
    for values, (ux, uy, vx, vy) in zip(filtered, axes.tolist(), strict=True):
        s = (ux * x)[None, :] + (uy * y)[:, None] + c  # (rows, columns)
        scale = None
        if isinstance(geometry, FanBeam):
            distance = 1 + ((vx * x)[None, :] + (vy * y)[:, None]) / geometry.source_origin
            s, scale = s / distance, distance**-2
        index = (s - first) / pitch
        left = index.floor().clamp(0, max(last - 1, 0))
        # Beyond the detector: nothing was measured there.
        fraction = index - left
        low = left.long()
        interpolated = torch.lerp(values[low], values[(low + 1).clamp(max=last)], fraction)
        interpolated = torch.where((index >= -0.5) & (index <= last + 0.5), interpolated, 0.0)
        image += interpolated if scale is None else interpolated * scale
    return image
