"""``ct-dip info``: show what a file holds."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ct_dip.cli.console import print_json, print_table
from ct_dip.cli.evaluate import summary as evaluation_summary
from ct_dip.cli.options import Verbose
from ct_dip.cli.reconstruct import heldout_summary
from ct_dip.errors import ResultError, ScanError
from ct_dip.progress import format_duration

if TYPE_CHECKING:
    from ct_dip.data.prediction import Prediction
    from ct_dip.data.scan import Scan


def info(
    file: Annotated[
        Path,
        typer.Argument(
            help="Scan or result file, folder of an evaluation or of a dataset, or a measured scan to import."
        ),
    ],
    format: Annotated[str, typer.Option(help="Format of a measured scan, as for ct-dip import.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as JSON.")] = False,
    verbose: Verbose = False,
) -> None:
    """Show what a file or folder holds, or what an import of a measured scan needs."""
    from ct_dip.data.hdf5 import file_kind, is_ours
    from ct_dip.data.result_file import read_result
    from ct_dip.data.scan_file import read_scan

    facts: dict[str, Any]
    if format == "auto" and (known := folder_summary(file)):
        facts = summary = known
    elif format != "auto" or not is_ours(file):
        from ct_dip.importers.describe import describe

        facts = summary = describe(file, format)
    elif file_kind(file) == "scan":
        scan = read_scan(file)
        facts, summary = scan_facts(scan), scan_summary(scan)
    else:
        result = read_result(file)
        facts, summary = result_facts(result), result_summary(result)
    if as_json:
        print_json(facts)
    else:
        print_table(str(file), summary)


def folder_summary(folder: Path) -> dict[str, str]:
    """Describe an evaluation or a dataset, and what to run next; nothing of what is neither."""
    from ct_dip.batch.table import FILE, read_facts, read_rows
    from ct_dip.data.datasets.lodopab import PARTS, LoDoPaB, is_lodopab, part_file
    from ct_dip.data.datasets.two_detect import TwoDetect, is_two_detect

    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if FILE in names:
        dataset = read_facts(folder).get("dataset", "nothing yet")
        page = {"page": f"ct-dip report {folder}"}
        return {"evaluation of": dataset} | evaluation_summary(read_rows(folder)) | page
    parts = {}
    if is_lodopab(names):
        there = [part for part in PARTS if part_file(folder, "observation", part, 0).exists()]
        parts = {f"part {part}": LoDoPaB(folder, part).describe() for part in there}
    elif is_two_detect(names):
        parts = {"dataset": TwoDetect(folder).describe()}
    return parts and parts | {"to reconstruct": f"ct-dip evaluate {folder} --methods fbp,tv --out OUT"}


def scan_facts(scan: "Scan") -> dict[str, Any]:
    """Collect every number of a scan."""
    geometry = scan.geometry.to_dict()
    angles = geometry.pop("angles")
    geometry |= {"angle_first": angles[0], "angle_last": angles[-1], "views": len(angles)}
    noise = {"kind": scan.noise.kind, **vars(scan.noise)} if scan.noise else None
    return {
        "format": "ct_dip.scan",
        "geometry": geometry,
        "offset_error": scan.offset_error,
        "noise": noise,
        "ground_truth": scan.ground_truth is not None,
        "mask": scan.mask is not None,
        "attenuation_scale": scan.attenuation_scale,
        "source": scan.source,
        "steps": list(scan.steps),
        "warnings": _scan_warnings(scan),
        "sinogram_min": float(scan.sinogram.min()),
        "sinogram_mean": float(scan.sinogram.mean()),
        "sinogram_max": float(scan.sinogram.max()),
        "digest": scan.digest,
    }


def scan_summary(scan: "Scan") -> dict[str, str]:
    """Describe a scan in a few lines."""
    from ct_dip.data.noise import WhiteNoise
    from ct_dip.geometry import FanBeam

    g, volume = scan.geometry, scan.geometry.volume
    known = f" ± {scan.offset_error:.2g}" if scan.offset_error else ""
    beam, detectors = "parallel beam", f"{g.detectors} × {g.detector_pitch:g} mm"
    # For a parallel beam only the difference of the two matters; a fan has both.
    axis = f"{g.center_of_rotation - g.detector_offset:.4g}{known} mm from the detector's centre"
    if isinstance(g, FanBeam):
        detectors += f", offset {g.detector_offset:g}{known} mm"
        axis = f"{g.center_of_rotation:g} mm from the central ray"
        beam = f"fan beam, {g.source_origin:g} mm to the axis, {g.origin_detector:g} mm to the detector"
    noise = "not known"
    if isinstance(scan.noise, WhiteNoise):
        share = 100 * scan.noise.std / max(float(abs(scan.sinogram).mean()), 1e-30)
        noise = f"white, standard deviation {scan.noise.std:.4g} ({share:.3g} % of the mean)"
    elif scan.noise is not None:
        constant = scan.noise.settled(scan.sinogram).constant
        beside = f"; the data show {constant:.2g} beside it, in every line integral" if constant else ""
        noise = f"photon counting, {scan.noise.photons:g} photons per bin in air{beside}"
    low, high = math.degrees(g.angles.min()), math.degrees(g.angles.max())
    rows = {
        "scan of": scan.source or "–",
        "geometry": beam,
        "views": f"{g.views}, from {low:.4g}° to {high:.4g}°",
        "detectors": detectors,
        "rotation axis": axis,
        "image": f"{volume.shape[0]} × {volume.shape[1]} pixels of {volume.pixel_size:g} mm",
        "line integrals": f"{scan.sinogram.min():.4g} to {scan.sinogram.max():.4g}",
        "noise": noise,
        "ground truth": "yes" if scan.ground_truth is not None else "no",
    }
    if scan.attenuation_scale != 1:
        rows["attenuation scale"] = f"{scan.attenuation_scale:g} /mm"
    rows |= {f"step {number}": step for number, step in enumerate(scan.steps, start=1)}
    if warnings := _scan_warnings(scan):
        rows["warnings"] = " ".join(warnings)
    return rows


def _scan_warnings(scan: "Scan") -> list[str]:
    """Return what a result of the scan would warn of, or why there can be none."""
    from ct_dip.data.plausibility import implausible

    try:
        return implausible(scan)
    except ScanError as error:
        return [*scan.warnings, f"{error}."]


def result_facts(result: "Prediction") -> dict[str, Any]:
    """Collect every number of a result."""
    return {
        "format": "ct_dip.result",
        "method": result.method,
        "shape": list(result.mean.shape),
        "pixel_size": result.pixel_size,
        "scan_digest": result.scan_digest,
        "settings": result.settings,
        "seconds": result.seconds,
        "versions": result.versions,
        "warnings": list(result.warnings),
        "scores": None if result.scores is None else result.scores.to_dict(),
        "heldout": None if result.heldout is None else result.heldout.to_dict(),
        **result.diagnostics,
    }


def result_summary(result: "Prediction") -> dict[str, str]:
    """Describe a result in a few lines."""
    rows, columns = result.mean.shape
    lines = {
        "method": result.method,
        "image": f"{rows} × {columns} pixels of {result.pixel_size:g} mm",
        "attenuation": f"{result.mean.min():.4g} to {result.mean.max():.4g} /mm",
    }
    if result.heldout is not None:
        lines["held-out views"] = heldout_summary(result.heldout)
    if result.warnings:
        lines["warnings"] = " ".join(result.warnings)
    scores = {} if result.scores is None else result.scores.row()
    names = {"psnr": "PSNR", "ssim": "SSIM"}
    for key, value in ({k: scores.get(k) for k in names} | result.diagnostics).items():
        if key == "certificate" and value:
            try:
                lines["accuracy"] = _spell_certificate(value)
            except KeyError as error:
                raise ResultError(f"metrics.certificate has no field {error}; reconstruct again") from error
        if value is None or isinstance(value, list | dict):  # tables are for --json
            continue
        name = names.get(key, key.replace("_", " "))
        unit = {"psnr": " dB", "peak_memory_mb": " MiB"}.get(key, "")
        text = (f"{value:.4g}" if isinstance(value, float) else f"{value}") + unit
        lines[name.removesuffix(" mb")] = text + _legend(key)
    for key, value in (result.diagnostics.get("hyperparameters") or {}).items():
        if "." not in key and isinstance(value, int | float):  # those of single blocks are for --json
            lines[key] = f"{value:.4g}" + _legend(key)
    lines["time"] = ", ".join(
        f"{name} {format_duration(seconds)}" for name, seconds in result.seconds.items()
    )
    for section, settings in result.settings.items():
        if isinstance(settings, dict):
            lines[f"{section} settings"] = ", ".join(f"{key} {value}" for key, value in settings.items())
    return lines


def _legend(name: str) -> str:
    """Say what a number means, in brackets."""
    from ct_dip.data.legend import meaning

    return f"  ({meaning(name)})" if meaning(name) else ""


def _spell_certificate(certificate: dict[str, Any]) -> str:
    """Describe the accuracy of compressed or iterative inference in one line."""
    parts = ["converged" if certificate["converged"] else "NOT converged"]
    if "rank" in certificate:
        parts += [
            f"rank {certificate['rank']}",
            f"{certificate['discarded_trace']:.2g} of the noise's trace left out",
            f"evidence within {certificate['evidence_error']:.2g} nats",
            f"mean within {certificate['mean_error']:.2g}, "
            f"samples within {certificate['sample_error']:.2g} deviations",
        ]
    else:
        parts += [f"residuals below {certificate['residual']:.2g}"]
    return ", ".join([*parts, f"{certificate['samples']} samples", f"{certificate['passes']} network passes"])
