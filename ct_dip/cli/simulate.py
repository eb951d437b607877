"""``ct-dip simulate``: simulate a scan of a phantom or an image, or a dataset of many."""

import math
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ct_dip.arrays import Floats
from ct_dip.cli.console import ConsoleProgress, print_line
from ct_dip.cli.options import Seed, Verbose, check_result_name, parse_angle
from ct_dip.errors import InputError


def _option(panel: str, help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel)


# Options under the headings of the help page.
_object = partial(_option, "Object")
_scanner = partial(_option, "Scanner")
_noise = partial(_option, "Noise and simulation")
_dataset = partial(_option, "Dataset")

DEFAULT_SIZE = 128
DEFAULT_NOISE = 0.05


def simulate(
    out: Annotated[Path, typer.Option(help="Scan file to write (.h5), or folder of a dataset.")],
    phantom: Annotated[
        str | None,
        _object(
            "Phantom to scan: shepp-logan, rectangles, ellipses, grains, cracks or walnut (the default)."
        ),
    ] = None,
    images: Annotated[
        Path | None,
        _object(
            "Scan the image in this PNG, NPY, NPZ or DICOM file, or, for a dataset, a folder of DICOM files."
        ),
    ] = None,
    index: Annotated[int | None, _object("Scan this image of a stack, counted from 0.")] = None,
    hu: Annotated[bool, _object("Take the image to be in Hounsfield units.", "--hu")] = False,
    size: Annotated[
        int | None,
        _object("Number of pixels of the longer side. Default: that of the image, or 128; 362 for lodopab."),
    ] = None,
    pixel_size: Annotated[
        float | None, _object("Width of a pixel in mm. Default: 1, or what a DICOM file states.")
    ] = None,
    views: Annotated[int | None, _scanner("Number of views. Default: 60; 1000 for lodopab.")] = None,
    arc: Annotated[
        str | None,
        _scanner(
            "Angle that the views cover, for example 180, 90deg or 3.14rad. Default: 180, or 360 for a fan."
        ),
    ] = None,
    detectors: Annotated[
        int | None,
        _scanner("Number of detector bins. Default: enough to see every pixel."),
    ] = None,
    detector_pitch: Annotated[
        float | None,
        _scanner("Distance between detector bins in mm. Default: one pixel at the rotation axis."),
    ] = None,
    detector_offset: Annotated[float, _scanner("Shift of the detector in mm.")] = 0.0,
    source_origin: Annotated[
        float | None,
        _scanner("Use a fan beam with this distance from the source to the rotation axis, in mm."),
    ] = None,
    origin_detector: Annotated[
        float | None,
        _scanner("Distance from the rotation axis to the detector of a fan beam, in mm."),
    ] = None,
    noise: Annotated[
        float | None,
        _noise("Add white noise of this size relative to the mean line integral; 0 for none. Default: 0.05."),
    ] = None,
    noise_std: Annotated[float | None, _noise("Add white noise with this standard deviation.")] = None,
    photons: Annotated[
        float | None,
        _noise("Add the noise of counting photons, this many per detector bin in air."),
    ] = None,
    attenuation: Annotated[
        float | None,
        _object("Attenuation in 1/mm of an image value of 1. Default: 0.02 (water), or 1 for an image file."),
    ] = None,
    same_grid: Annotated[
        bool,
        _noise("Simulate on the grid of the reconstruction (the inverse crime).", "--same-grid"),
    ] = False,
    allow_truncation: Annotated[
        bool,
        _noise("Accept an object wider than the field of view.", "--allow-truncation"),
    ] = False,
    dataset: Annotated[str | None, _dataset("Write a folder of many scans in this layout: lodopab.")] = None,
    part: Annotated[
        str | None,
        _dataset("Part of the dataset to write: train, validation, test (the default) or challenge."),
    ] = None,
    items: Annotated[
        int | None,
        _dataset("Number of scans. Default: one per image; at most 8 per image, rotated and mirrored."),
    ] = None,
    seed: Seed = 0,
    verbose: Verbose = False,
) -> None:
    """Simulate a scan of a phantom or an image and write a scan file, or a dataset of many."""
    if phantom is not None and images is not None:
        raise InputError("--phantom and --images exclude each other; drop one")
    if dataset is not None:
        only_scans = {
            "--index": index,
            "--pixel-size": pixel_size,
            "--arc": arc,
            "--detectors": detectors,
            "--detector-pitch": detector_pitch,
            "--detector-offset": detector_offset or None,
            "--source-origin": source_origin,
            "--origin-detector": origin_detector,
            "--noise": noise,
            "--noise-std": noise_std,
            "--attenuation": attenuation,
            "--same-grid": same_grid or None,
            "--allow-truncation": allow_truncation or None,
        }
        if given := [name for name, value in only_scans.items() if value is not None]:
            raise InputError(f"{', '.join(given)}: a dataset has its own; drop it")
        scanner_options = {"side": size, "views": views, "photons": photons}
        _simulate_dataset(out, dataset, phantom, images, hu, part, items, seed, scanner_options)
        return
    if part is not None or items is not None:
        raise InputError("--part and --items belong to --dataset; name its layout: lodopab")
    views = 60 if views is None else views
    from ct_dip.data.scan_file import write_scan
    from ct_dip.data.simulate import WATER, NoiseLevel
    from ct_dip.data.simulate import simulate as run
    from ct_dip.files import check_writable
    from ct_dip.geometry import Volume
    from ct_dip.scanners import scanner

    check_result_name(out, "a scan")
    if images is not None and images.exists() and out.exists() and out.samefile(images):
        raise InputError(f"--out {out} is the image itself; choose another name")
    if noise is not None and not 0 <= noise < 1:
        raise InputError(
            f"--noise {noise:g} is {100 * noise:g} % of the mean; write 0.05 for 5 %, 0 for none, "
            "or use --noise-std"
        )
    if images is None and (index is not None or hu):
        raise InputError("--index and --hu belong to --images; name the file")
    if size is not None and size < 2:
        raise InputError(f"--size {size} must be at least 2")

    object_: str | Floats
    if images is not None:
        from ct_dip.data.dicom import is_dicom, read_dicom
        from ct_dip.data.images import load_image, relative_attenuation

        if is_dicom(images):
            units, edge = read_dicom(images, index=index)
            object_, hu = relative_attenuation(units), True
            if edge is None and pixel_size is None:
                raise InputError(f"{images} does not state the edge of its pixels; give --pixel-size MM")
        else:
            object_, edge = load_image(images, index=index, hounsfield=hu), None
        shape = _scaled(object_.shape, size or max(object_.shape))
        if pixel_size is None and edge is not None:
            pixel_size = edge * max(object_.shape) / max(shape)
        source = images.name if index is None else f"{images.name}, image {index}"
    else:
        object_ = phantom or "walnut"
        shape, source = (size or DEFAULT_SIZE, size or DEFAULT_SIZE), ""
    if attenuation is None:
        attenuation = 1.0 if images is not None and not hu else WATER
    elif not 0 < attenuation < math.inf:
        raise InputError(f"--attenuation {attenuation} must be positive, in 1/mm")

    geometry = scanner(
        Volume(shape=shape, pixel_size=1.0 if pixel_size is None else pixel_size),
        views=views,
        arc=None if arc is None else parse_angle(arc, "--arc"),
        detectors=detectors,
        detector_pitch=detector_pitch,
        detector_offset=detector_offset,
        source_origin=source_origin,
        origin_detector=origin_detector,
    )

    if noise is None and noise_std is None and photons is None:
        noise = DEFAULT_NOISE
    if sum(level is not None for level in (noise, noise_std, photons)) > 1:
        raise InputError("--noise, --noise-std and --photons exclude each other; choose one")
    level = NoiseLevel(relative=noise or None, std=noise_std, photons=photons)
    check_writable(out)
    scan = run(
        object_,
        geometry,
        noise=level,
        attenuation=attenuation,
        same_grid=same_grid,
        allow_truncation=allow_truncation,
        seed=seed,
        source=source,
    )
    write_scan(scan, out)
    rows, columns = shape
    print_line(
        f"{out}: {views} views × {geometry.detectors} bins of {scan.source}, {rows} × {columns} pixels"
    )


def _scaled(shape: tuple[int, ...], longest: int) -> tuple[int, int]:
    rows, columns = (max(1, round(n * longest / max(shape))) for n in shape)
    return rows, columns


def _simulate_dataset(
    out: Path,
    layout: str,
    phantom: str | None,
    images: Path | None,
    hu: bool,
    part: str | None,
    items: int | None,
    seed: int,
    scanner: dict[str, Any],
) -> None:
    from ct_dip.data.datasets.slices import FileSlices, PhantomSlices, Slices
    from ct_dip.data.datasets.write_lodopab import write_lodopab

    if layout != "lodopab":
        raise InputError(f"--dataset {layout!r} is no layout that can be written; choose lodopab")
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; a dataset is a folder")
    slices: Slices
    if images is None:
        if hu:
            raise InputError("--hu belongs to --images; name the file")
        if items is None:
            raise InputError("--items is needed for phantoms: how many scans?")
        slices = PhantomSlices(phantom or "walnut", items, seed)
    else:
        slices = FileSlices(images, hounsfield=hu)
    given = {name: value for name, value in scanner.items() if value is not None}
    written = write_lodopab(
        out, slices, part=part or "test", items=items, seed=seed, progress=ConsoleProgress(), **given
    )
    print_line(f"{out}: {written.describe()}")
