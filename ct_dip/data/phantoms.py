"""Test objects, defined on the square [−1, 1]² so that every resolution shows the same one.

Each phantom is a function of x and y (y upwards) and of a random generator, with values in [0, 1] and
nothing outside the unit disk, so that a scan can see all of it.
"""

from collections.abc import Callable

import numpy as np

from ct_dip.arrays import Floats
from ct_dip.errors import InputError

Renderer = Callable[[Floats, Floats, np.random.Generator], Floats]


def phantom(name: str, shape: tuple[int, int], seed: int = 0) -> Floats:
    """Draw a phantom at the pixel centres of a grid, (rows, columns).

    Args:
        name: one of `PHANTOMS`.
        shape: (rows, columns); the shorter side spans [−1, 1].
        seed: of the random ones; the same seed gives the same object at every shape.
    """
    if name not in PHANTOMS:
        raise InputError(f"phantom {name!r} is not known; choose one of {', '.join(PHANTOMS)}")
    rows, columns = shape
    half = min(shape) / 2
    x = (np.arange(columns) - (columns - 1) / 2)[None, :] / half
    y = ((rows - 1) / 2 - np.arange(rows))[:, None] / half
    x, y = np.broadcast_arrays(x, y)
    return np.clip(PHANTOMS[name](x, y, np.random.default_rng(seed)), 0, 1)


def _shepp_logan(x: Floats, y: Floats, rng: np.random.Generator) -> Floats:
    from scipy.ndimage import map_coordinates
    from skimage.data import shepp_logan_phantom

    image = shepp_logan_phantom()
    size = image.shape[0]
    rows, columns = ((1 - y) * size - 1) / 2, ((1 + x) * size - 1) / 2
    return np.asarray(map_coordinates(image, [rows, columns], order=1, mode="constant"))


def _rectangles(x: Floats, y: Floats, rng: np.random.Generator) -> Floats:
    image = np.zeros_like(x)
    for _ in range(rng.integers(3, 7)):
        along, across = _turned(x, y, rng, reach=0.45)
        half_length, half_width = rng.uniform(0.1, 0.42), rng.uniform(0.06, 0.3)
        inside = (np.abs(along) <= half_length) & (np.abs(across) <= half_width)
        image = np.where(inside, rng.uniform(0.15, 1.0), image)
    return image


def _ellipses(x: Floats, y: Floats, rng: np.random.Generator) -> Floats:
    image = np.where(np.hypot(x / 0.9, y / 0.75) <= 1, 0.35, 0.0)
    for _ in range(rng.integers(8, 16)):
        along, across = _turned(x, y, rng, reach=0.55)
        axes = rng.uniform(0.04, 0.3, size=2)
        inside = (np.hypot(along / axes[0], across / axes[1]) <= 1) & (image > 0)
        image = np.where(inside, np.clip(image + rng.uniform(-0.3, 0.45), 0.05, 1), image)
    return image


def _walnut(x: Floats, y: Floats, rng: np.random.Generator) -> Floats:
    """Draw a shell, an air gap, two kernel halves with folds, a septum, and voids of a few pixels."""
    radius, angle = np.hypot(x, y / 0.92), np.arctan2(y, x)
    shell = 0.88 + _wave(angle, rng, amplitude=0.012, orders=range(2, 9))
    inner = shell - 0.075 - _wave(angle, rng, amplitude=0.012, orders=range(3, 14))
    image = np.where((radius <= shell) & (radius >= inner), 0.75, 0.0)

    kernel = inner - 0.06 + _wave(angle, rng, amplitude=0.035, orders=range(4, 16))
    folds = np.zeros_like(x)
    for _ in range(12):
        along, across = _turned(x, y, rng, reach=0.5)
        bend = rng.uniform(0.03, 0.09) * np.sin(rng.uniform(6, 14) * along)
        width, length = rng.uniform(0.01, 0.03), rng.uniform(0.1, 0.35)
        folds = np.maximum(folds, (np.abs(across - bend) <= width) & (np.abs(along) <= length))
    gap = 0.05 + 0.04 * np.sin(5 * y + rng.uniform(0, 6))
    meat = (radius <= kernel) & (np.abs(x) >= gap) & (folds == 0)
    texture = 0.05 * np.sin(23 * x + 4 * np.sin(9 * y)) * np.sin(19 * y + 3 * np.sin(11 * x))
    image = np.where(meat, 0.5 + texture, image)

    septum = np.abs(x - 0.02 * np.sin(7 * y)) <= 0.012
    image = np.where(septum & (radius <= inner), 0.6, image)
    for _ in range(25):
        along, across = _turned(x, y, rng, reach=0.65)
        void = np.hypot(along, across) <= rng.uniform(0.012, 0.03)
        image = np.where(void & meat, 0.1, image)
    return image


def _grains(x: Floats, y: Floats, rng: np.random.Generator) -> Floats:
    """Draw a lump of grains, Voronoi cells of random points: three minerals with a spread each, and pores."""
    from scipy.spatial import KDTree

    rim = 0.85 + _wave(np.arctan2(y, x), rng, amplitude=0.04, orders=range(2, 8))
    seeds = rng.uniform(-1, 1, size=(450, 2))
    mineral = rng.choice([0.0, 0.35, 0.6, 0.85], size=len(seeds), p=[0.12, 0.33, 0.38, 0.17])
    value = np.where(mineral > 0, mineral + rng.uniform(-0.1, 0.1, size=len(seeds)), 0.0)
    _, grain = KDTree(seeds).query(np.stack([x, y], axis=-1))
    return np.where(np.hypot(x, y) <= rim, value[grain], 0.0)


def _cracks(x: Floats, y: Floats, rng: np.random.Generator) -> Floats:
    """Draw a slab whose attenuation changes smoothly, with jagged cracks at most 0.04 wide."""
    inside = (x / 0.85) ** 4 + (y / 0.7) ** 4 <= 1
    field = np.zeros_like(x)
    for _ in range(5):
        along, _ = _turned(x, y, rng, reach=0.0)
        field += rng.uniform(0.5, 1) * np.sin(rng.uniform(1, 3.5) * along + rng.uniform(0, 2 * np.pi))
    image = 0.6 + 0.3 * np.tanh(field / 2)
    for _ in range(8):
        along, across = _turned(x, y, rng, reach=0.6)
        half_length, half_width = rng.uniform(0.2, 0.6), rng.uniform(0.006, 0.02)
        bends = np.linspace(-half_length, half_length, 9)
        path = np.interp(along, bends, np.cumsum(rng.normal(scale=0.05, size=len(bends))))
        taper = np.clip(1 - np.abs(along) / half_length, 0, 1) ** 0.5
        image = np.where(np.abs(across - path) <= half_width * taper, 0.1, image)
    return np.where(inside, image, 0.0)


def _turned(x: Floats, y: Floats, rng: np.random.Generator, reach: float) -> tuple[Floats, Floats]:
    """Return coordinates in a frame with a random centre within ``reach`` and a random direction."""
    distance, bearing = reach * np.sqrt(rng.uniform()), rng.uniform(0, 2 * np.pi)
    direction = rng.uniform(0, np.pi)
    dx, dy = x - distance * np.cos(bearing), y - distance * np.sin(bearing)
    c, s = np.cos(direction), np.sin(direction)
    return c * dx + s * dy, -s * dx + c * dy


def _wave(angle: Floats, rng: np.random.Generator, amplitude: float, orders: range) -> Floats:
    total = np.zeros_like(angle)
    for order in orders:
        total += rng.normal() * np.cos(order * angle + rng.uniform(0, 2 * np.pi))
    return amplitude * total / np.sqrt(len(orders))


PHANTOMS: dict[str, Renderer] = {
    "shepp-logan": _shepp_logan,
    "rectangles": _rectangles,
    "ellipses": _ellipses,
    "walnut": _walnut,
    "grains": _grains,
    "cracks": _cracks,
}
