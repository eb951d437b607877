"""Motions of an image that leave it as plausible as it was: turns, mirrors, rotations and shifts."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.ndimage import rotate

from ct_dip.arrays import Floats

MotionKind = Literal["all", "exact", "none"]
_ANGLE = 10.0  # degrees of a rotation, at most
_SHIFT = 2  # pixels of a shift along an axis, at most


@dataclass(frozen=True, kw_only=True)
class Motion:
    """Quarter turns, a mirror, a rotation, a shift around the borders, in this order; T of an image.

    All but the rotation move whole pixels and are undone exactly; that is
    interpolated by cubic splines, with a mirror at the borders.
    """

    quarters: int = 0
    mirrored: bool = False
    angle: float = 0.0  # degrees
    shift: tuple[int, int] = (0, 0)  # pixels

    def apply(self, image: Floats) -> Floats:
        """Apply the motion: ``T x``, (rows, columns)."""
        image = np.rot90(image, self.quarters)
        image = _rotated(image[:, ::-1] if self.mirrored else image, self.angle)
        return np.roll(image, self.shift, axis=(0, 1))

    def undo(self, image: Floats) -> Floats:
        """Undo the motion: ``T⁻¹ x``, (rows, columns)."""
        image = _rotated(np.roll(image, (-self.shift[0], -self.shift[1]), axis=(0, 1)), -self.angle)
        return np.rot90(image[:, ::-1] if self.mirrored else image, -self.quarters)


def draw_motion(shape: tuple[int, int], kind: MotionKind, rng: np.random.Generator) -> Motion:
    """Draw a random motion of images of a shape; ``exact`` has no rotation, ``none`` moves nothing."""
    if kind == "none":
        return Motion()
    down, right = rng.integers(-_SHIFT, _SHIFT + 1, size=2)
    return Motion(
        quarters=int(rng.integers(4)) if shape[0] == shape[1] else 2 * int(rng.integers(2)),
        mirrored=bool(rng.integers(2)),
        angle=float(rng.uniform(-_ANGLE, _ANGLE)) if kind == "all" else 0.0,
        shift=(int(down), int(right)),
    )


def _rotated(image: Floats, angle: float) -> Floats:
    return np.asarray(rotate(image, angle, reshape=False, order=3, mode="reflect")) if angle else image
