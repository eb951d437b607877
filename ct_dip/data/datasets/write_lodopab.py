"""Simulate a dataset as LoDoPaB-CT was simulated, and write it in its layout."""

import contextlib
import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

from ct_dip.arrays import Floats
from ct_dip.checks import check_count
from ct_dip.data.datasets.hdf5_stacks import PER_FILE, new_stack
from ct_dip.data.datasets.lodopab import (
    PARTS,
    PHOTONS,
    SCALE,
    SIDECAR,
    Layout,
    LoDoPaB,
    lodopab_geometry,
    part_file,
)
from ct_dip.data.datasets.slices import Slices
from ct_dip.data.noise import PhotonNoise, add_photon_noise
from ct_dip.errors import InputError
from ct_dip.files import write_bytes
from ct_dip.geometry import Geometry, Volume
from ct_dip.operators import ray_transform
from ct_dip.progress import Progress

_FINER = 1000 / 362  # LoDoPaB's truths of 362² pixels were interpolated to 1000² before they were projected


def write_lodopab(
    folder: str | Path,
    slices: Slices,
    *,
    part: str = "test",
    items: int | None = None,
    side: int = 362,
    views: int = 1000,
    photons: float = PHOTONS,
    seed: int = 0,
    progress: Progress | None = None,
) -> LoDoPaB:
    """Write ``items`` simulated scans with their truths, and open them.

    Where there are more items than slices, these come again, turned and mirrored: 8 times at most.

    Args:
        folder: which may hold other parts with the same geometry.
        part: ``train``, ``validation``, ``test``, or ``challenge``, which gets no truths.
        items: as many as there are slices if not given.
        side, views: of the scanner, see `lodopab_geometry`.
        photons: per bin in air.
    """
    folder, progress = Path(folder), progress or Progress()
    geometry = lodopab_geometry(check_count(side, "side"), check_count(views, "views"))
    items = check_count(len(slices) if items is None else items, "items")
    if items > 8 * len(slices):
        raise InputError(
            f"{items} items cannot be made of {len(slices)} slices, which are turned and mirrored 8 times at "
            f"most; ask for {8 * len(slices)}"
        )
    layout = _layout(folder, part, items, geometry, PhotonNoise(photons=photons).photons, slices.source)
    shapes = {"observation": geometry.range_shape, "ground_truth": geometry.domain_shape}
    if part == "challenge":
        del shapes["ground_truth"]
    with _whole_or_not_at_all(folder, part), progress.stage("simulated scans", items) as stage:
        layout.write(folder)  # first: without it, what follows would be taken for LoDoPaB itself
        for first in range(0, items, PER_FILE):
            count = min(PER_FILE, items - first)
            with ExitStack() as files:
                stacks = {
                    kind: files.enter_context(
                        new_stack(part_file(folder, kind, part, first // PER_FILE), (count, *shape))
                    )
                    for kind, shape in shapes.items()
                }
                for place in range(count):
                    rng = np.random.default_rng([seed, PARTS.index(part), first + place])
                    truth = _truth(slices, first + place, side, rng)
                    stored = {
                        "observation": _observe(truth, geometry, photons, rng) / (1000 * SCALE),
                        "ground_truth": LoDoPaB.stored_image(truth),
                    }
                    for kind, stack in stacks.items():
                        stack[place] = stored[kind]
                    stage.update(first + place + 1)
    return LoDoPaB(folder, part)


@contextlib.contextmanager
def _whole_or_not_at_all(folder: Path, part: str) -> Iterator[None]:
    """Leave the folder as it was, without the part, if a slice is refused or the work is stopped."""
    sidecar, existed = folder / SIDECAR, folder.exists()
    before = sidecar.read_bytes() if sidecar.exists() else None
    try:
        yield
    except BaseException:
        for path in folder.glob(f"*_{part}_*.hdf5"):
            path.unlink()
        if before is None:
            sidecar.unlink(missing_ok=True)
        else:
            write_bytes(sidecar, before)
        if not existed:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _layout(folder: Path, part: str, items: int, geometry: Geometry, photons: float, source: str) -> Layout:
    """Return the description of the folder with a new part in it."""
    if part not in PARTS:
        raise InputError(f"part {part!r} is not known; choose one of {', '.join(PARTS)}")
    before = Layout(geometry=geometry, photons=photons, source=f"LoDoPaB's simulation of {source}")
    if folder.is_dir() and any(folder.iterdir()):
        if any(folder.glob(f"*_{part}_*.hdf5")):
            raise InputError(f"{folder} has a part {part!r} already; choose another folder or part")
        before = Layout.read(folder)
        if before.geometry != geometry or before.photons != photons:
            raise InputError(
                f"{folder} holds other files, or scans of another geometry; choose another folder"
            )
    return dataclasses.replace(before, items={**before.items, part: items})


def _truth(slices: Slices, item: int, side: int, rng: np.random.Generator) -> Floats:
    """Return a slice on the grid, 1/mm, (side, side): turned, and mirrored, if it comes again."""
    from skimage.transform import resize

    again, index = divmod(item, len(slices))
    image = slices.attenuation(index, side, rng)
    rows, columns = image.shape
    if abs(rows / columns - 1) > 0.02:
        raise InputError(f"slice {index} of {slices.source} has shape {image.shape}; cut it to a square")
    if image.shape != (side, side):
        image = resize(image, (side, side), order=1, mode="edge", anti_aliasing=rows > side)
    image = np.rot90(image, again % 4)
    return np.clip(image[:, ::-1] if again >= 4 else image, 0, SCALE)


def _observe(truth: Floats, geometry: Geometry, photons: float, rng: np.random.Generator) -> Floats:
    """Return noisy line integrals: the truth interpolated to a finer grid, projected, counted."""
    from skimage.transform import resize

    shape = tuple(round(n * _FINER) for n in truth.shape)
    fine = resize(truth, shape, order=1)
    volume = Volume(shape=shape, pixel_size=geometry.volume.size[0] / shape[0])
    transform = ray_transform(geometry.with_volume(volume), "astra")
    ideal = transform(torch.as_tensor(fine, dtype=torch.float32)).double().numpy()
    return add_photon_noise(ideal, rng, photons=photons)[0]
