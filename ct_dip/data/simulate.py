"""Simulated scans of phantoms and images, without the inverse crime unless it is asked for."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from ct_dip import memory
from ct_dip.arrays import Floats
from ct_dip.checks import check_type
from ct_dip.data.noise import NoiseModel, add_photon_noise, add_white_noise, mean_intensity
from ct_dip.data.phantoms import phantom
from ct_dip.data.scan import Scan
from ct_dip.errors import ScanError
from ct_dip.geometry import Geometry
from ct_dip.operators import ray_transform

# Pixels and rays are this many times finer, in each direction, than those of the reconstruction.
OVERSAMPLING = 3
WATER = 0.02  # 1/mm, near 70 keV


@dataclass(frozen=True, kw_only=True)
class NoiseLevel:
    """The noise to add: at most one of the three, none for ideal data."""

    relative: float | None = None
    std: float | None = None
    photons: float | None = None

    def __post_init__(self) -> None:
        for name, level in vars(self).items():
            if level is None:
                continue
            if not isinstance(level, int | float | np.number) or not 0 < level < math.inf:
                raise ScanError(f"noise {name} {level!r} must be a positive number")
        if sum(level is not None for level in vars(self).values()) > 1:
            raise ScanError("choose one kind of noise: relative, std or photons")


def simulate(
    image: str | Floats,
    geometry: Geometry,
    *,
    noise: NoiseLevel | None = None,
    attenuation: float = WATER,
    same_grid: bool = False,
    allow_truncation: bool = False,
    seed: int = 0,
    source: str = "",
) -> Scan:
    """Scan an object.

    By default the object lives on a grid that is `OVERSAMPLING` times finer than the
    reconstruction's, every detector bin averages as many rays, and the ground truth is the mean over
    each coarse pixel. With photon counting the average is taken over intensities, as in a detector.

    Args:
        image: name of a phantom, or relative attenuation of any shape with the grid's proportions.
        geometry: scanner and reconstruction grid.
        noise: what to add.
        attenuation: of image value 1, in 1/mm; becomes the scan's ``attenuation_scale``.
        same_grid: project the ground truth itself with the default kernel: the inverse crime,
            which parts of the literature commit (KMNIST).
        allow_truncation: accept an object that reaches beyond the detector's field of view.
        seed: of the phantom and of the noise, which are drawn independently.

    Raises:
        MemoryBudgetError: before any work, with the numbers.
        ScanError: the detector does not see the whole object, or the object is opaque.
    """
    check_type(geometry, Geometry, "geometry", "a ParallelBeam or FanBeam, as scanner makes it")
    check_type(noise, NoiseLevel | None, "noise", "a NoiseLevel, for example NoiseLevel(relative=0.05)")
    noise = noise or NoiseLevel()
    factor = 1 if same_grid else OVERSAMPLING
    memory.require(
        _bytes(geometry, factor),
        memory.memory_budget(),
        what="simulating {} × {} pixels and {} views of {} bins".format(
            *geometry.domain_shape, *geometry.range_shape
        ),
        advice="use a smaller size, fewer views or the same grid",
    )
    fine = geometry.split_detectors(factor).with_volume(geometry.volume.refine(factor))
    if isinstance(image, str):
        source = source or f"phantom {image}, seed {seed}"
        object_: Floats = phantom(image, fine.volume.shape, seed)
    else:
        object_ = _resample(np.asarray(image, dtype=np.float64), fine.volume.shape)
    truth = _block_mean(object_, factor) * attenuation
    if not allow_truncation:
        _refuse_truncation(object_, fine)

    # Matrix-free: one projection is cheaper than a matrix that nobody uses again.
    transform = ray_transform(fine, "astra")
    rays = transform(torch.as_tensor(object_ * attenuation, dtype=torch.float32)).double().numpy()
    rays = rays.reshape(*geometry.range_shape, factor)
    ideal = rays.mean(axis=-1) if noise.photons is None else mean_intensity(rays)
    sinogram, model = _add_noise(ideal, noise, np.random.default_rng([seed, 1]))
    return Scan(
        sinogram=sinogram.astype(np.float32),
        geometry=geometry,
        noise=model,
        ground_truth=truth.astype(np.float32),
        attenuation_scale=attenuation,
        source=source or "image",
    )


def _bytes(geometry: Geometry, factor: int) -> int:
    """Estimate the peak memory on the fine grid: 18 float64 images, as measured, and 6 sinograms."""
    pixels, rays = np.prod(geometry.domain_shape), np.prod(geometry.range_shape)
    return int(8 * (18 * factor**2 * pixels + 6 * factor * rays))


def _add_noise(
    ideal: Floats, noise: NoiseLevel, rng: np.random.Generator
) -> tuple[Floats, NoiseModel | None]:
    if noise.photons is not None:
        return add_photon_noise(ideal, rng, photons=noise.photons)
    if noise.relative is None and noise.std is None:
        return ideal, None
    return add_white_noise(ideal, rng, relative=noise.relative, std=noise.std)


def _resample(image: Floats, shape: tuple[int, int]) -> Floats:
    if image.shape == shape:
        return image
    if image.ndim != 2 or abs(image.shape[0] * shape[1] / (image.shape[1] * shape[0]) - 1) > 0.02:
        raise ScanError(f"an image of shape {image.shape} does not have the proportions of the grid {shape}")
    from skimage.transform import resize

    smaller = any(new < old for new, old in zip(shape, image.shape, strict=True))
    return np.asarray(resize(image, shape, order=1, mode="edge", anti_aliasing=smaller))


def _block_mean(image: Floats, factor: int) -> Floats:
    rows, columns = (n // factor for n in image.shape)
    return np.asarray(image.reshape(rows, factor, columns, factor).mean(axis=(1, 3)))


def _refuse_truncation(image: Floats, geometry: Geometry) -> None:
    x, y = geometry.volume.pixel_centers()
    radius = float(np.hypot(x[None, :], y[:, None])[image > 0].max(initial=0.0))
    if radius > geometry.field_of_view:
        raise ScanError(
            f"the detector misses part of the object, which reaches {radius:.4g} mm from the axis, "
            f"where every view sees {geometry.field_of_view:.4g} mm only; use more or wider detectors, "
            "or --allow-truncation"
        )
