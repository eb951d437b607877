"""``ct-dip reconstruct``: from a scan file to a result, a picture, a page that explains it, and figures."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ct_dip.cli.console import ConsoleProgress, print_line
from ct_dip.cli.options import (
    Budget,
    ConfigFile,
    Device,
    Method,
    OptionalSeed,
    Preset,
    Settings,
    Threads,
    Verbose,
    check_result_name,
)
from ct_dip.errors import InputError, InterruptedRunError, OutputError
from ct_dip.progress import format_duration

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ct_dip.config import RunConfig
    from ct_dip.data.prediction import Prediction
    from ct_dip.data.scan import Scan
    from ct_dip.data.scores import HeldoutScores


def reconstruct(
    scans: Annotated[list[Path], typer.Argument(metavar="SCAN...", help="Scan files to reconstruct.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Result file to write (.h5), with PNG, YAML and HTML files beside it; for several scans a "
            "folder. Default: SCAN-METHOD.h5 in this folder, or the folder results."
        ),
    ] = None,
    method: Method = None,
    preset: Preset = None,
    config: ConfigFile = None,
    set_: Settings = None,
    backend: Annotated[
        str | None,
        typer.Option(help="Compute ray transforms with sparse, astra, odl or tomosipo. Default: auto."),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            help="Weight the pixels along a ray by the kernel line, linear or strip. Default: auto."
        ),
    ] = None,
    regime: Annotated[
        str | None,
        typer.Option(help="Inference of lin-dip: auto (the default), exact, compressed or iterative."),
    ] = None,
    hyperprior: Annotated[
        str | None, typer.Option(help="Hyperprior of lin-dip: auto (the default), weak, none or tv-predcp.")
    ] = None,
    device: Device = None,
    threads: Threads = None,
    seed: OptionalSeed = None,
    run_folder: Annotated[
        Path | None,
        typer.Option(
            "--run",
            help="Folder to keep checkpoints of a long fit in. Default: beside the result, until it is done.",
        ),
    ] = None,
    resume: Annotated[
        Literal["exact", "compatible"],
        typer.Option(
            help="Continue a checkpoint only if the result stays the same to the last bit (exact), or also "
            "after a change of device, number of threads or version of torch (compatible)."
        ),
    ] = "exact",
    holdout: Annotated[
        bool,
        typer.Option(
            "--holdout/--no-holdout",
            help="Let lin-dip widen its error bars until they explain views that a first fit did not see. "
            "Without this, a run takes half the time, and error bars may be several times too narrow.",
        ),
    ] = True,
    check: Annotated[
        Literal["auto", "views", "none"] | None,
        typer.Option(
            help="Check the error bars: reconstruct again without a fifth of the views and score how well "
            "these are predicted (views), do so for small images without a truth or reference (auto), or "
            "never (none)."
        ),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            help="Compare a measured scan with this image in 1/mm: .npy, .tif, or a result file (.h5)."
        ),
    ] = None,
    reference_noise: Annotated[
        float | None, typer.Option(help="Standard deviation of the reference's pixels, in 1/mm.")
    ] = None,
    report: Annotated[
        bool | None,
        typer.Option(
            "--report/--no-report",
            help="Write a page that explains the result. Default: if it has error bars.",
        ),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Write all figures to this folder, as PNG files.")
    ] = None,
    budget_memory: Budget = None,
    budget_minutes: Annotated[
        float | None,
        typer.Option(
            help="Stop compressed or iterative inference after this many minutes, with fewer samples. This "
            "does not include the fit of the network, and has no effect on exact inference."
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Reconstruct scans, and write each result with a picture, a page that explains it, and its settings."""
    if reference_noise is not None and reference is None:
        raise InputError(
            f"--reference-noise {reference_noise:g} has no effect without --reference; drop it, or give one"
        )
    from ct_dip.methods import find_method, load_config

    given = {"inference.hyperprior": hyperprior, "inference.regime": regime}
    if not holdout:
        given["inference.calibrate"] = "none"
    settings = load_config(
        config,
        settings=[*(set_ or ()), *(f"{name}={value}" for name, value in given.items() if value)],
        method=method,
        preset=preset,
        backend=backend,
        kernel=kernel,
        device=device,
        seed=seed,
        threads=threads,
        check=check,
    )
    chosen = find_method(settings.method)
    if run_folder is not None and not chosen.keeps_stages:
        raise InputError(
            f"--run {run_folder} has no effect with method {settings.method!r}, which keeps no checkpoints; "
            "drop it"
        )
    files = Files(
        config=config,
        reference=reference,
        run_folder=run_folder,
        figures=figures,
        paged="error bars" in chosen.gives if report is None else report,
    )
    if out is None:
        out = Path(f"{scans[0].stem}-{settings.method}.h5" if len(scans) == 1 else "results")
    limits = {"memory_budget": budget_memory, "budget_minutes": budget_minutes, "resume": resume}
    targets = _targets(scans, out, files)
    for scan, target in targets.items():
        _check(scan, target, files, reference_noise)  # refused now rather than when others are done
    for scan, target in targets.items():
        _reconstruct_one(scan, target, settings, files, limits, reference_noise)


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files that a reconstruction reads beside the scan, and writes beside the result."""

    config: Path | None
    reference: Path | None
    run_folder: Path | None
    figures: Path | None
    paged: bool

    def load_reference(self, scan: "Scan") -> "NDArray[Any] | None":
        """Read the image to compare with."""
        from ct_dip.data.reference_file import read_reference

        return read_reference(self.reference, scan.geometry.volume.pixel_size) if self.reference else None


def _targets(scans: list[Path], out: Path, files: Files) -> dict[Path, Path]:
    """Name the result file of every scan: ``out`` itself for one scan, else files in that folder."""
    if len(scans) == 1:
        check_result_name(out, "a result")
        return {scans[0]: out}
    single = {"--reference": files.reference, "--run": files.run_folder, "--figures": files.figures}
    for name, value in single.items():
        if value is not None:
            raise InputError(f"{name} {value} belongs to one scan; reconstruct {len(scans)} scans without it")
    if out.suffix or out.is_file():
        raise InputError(f"--out {out} must be a folder for the results of {len(scans)} scans")
    if len({scan.stem for scan in scans}) < len(scans):
        raise InputError("two scans have the same name, and so would their results; reconstruct one by one")
    return {scan: out / f"{scan.stem}.h5" for scan in scans}


def _beside(out: Path) -> tuple[Path, Path, Path]:
    """Name the picture, the settings and the page of a result."""
    return out.with_suffix(".png"), out.with_suffix(".yaml"), out.with_suffix(".html")


def _check(path: Path, out: Path, files: Files, reference_noise: float | None) -> None:
    """Refuse inputs that cannot be read and outputs that cannot be written."""
    from ct_dip.data.comparison import comparison_of_scan
    from ct_dip.data.scan_file import read_scan

    scan = read_scan(path)
    comparison_of_scan(scan, files.load_reference(scan), reference_noise)
    picture, repeat, page = _beside(out)
    inputs = {
        "the scan itself": path,
        f"the settings {files.config}": files.config,
        f"the reference {files.reference}": files.reference,
    }
    further = [files.run_folder / "dip.npz"] if files.run_folder else []
    further += [files.figures / "image.png"] if files.figures else []
    _check_outputs(out, [picture, repeat, *([page] if files.paged else [])], inputs, further)


def _reconstruct_one(
    path: Path,
    out: Path,
    settings: "RunConfig",
    files: Files,
    limits: dict[str, Any],
    reference_noise: float | None,
) -> None:
    """Reconstruct one scan; write its result, its picture, its settings, its page and its figures."""
    import yaml

    from ct_dip.data.result_file import write_result
    from ct_dip.data.scan_file import read_scan
    from ct_dip.files import write_bytes
    from ct_dip.pages.all_figures import figures, result_panel
    from ct_dip.pages.figures import save_png
    from ct_dip.pages.report_page import write_report
    from ct_dip.pipeline import reconstruct as run

    scan = read_scan(path)
    picture, repeat, page = _beside(out)
    folder = files.run_folder or out.with_suffix(".run")
    try:
        result = run(
            scan,
            settings,
            progress=ConsoleProgress(),
            run_folder=folder,
            reference=files.load_reference(scan),
            reference_std=reference_noise,
            **limits,
        )
        write_result(result, out)
        save_png(result_panel(result, title=scan.source or None), picture)
        write_bytes(repeat, yaml.safe_dump(result.settings, sort_keys=True).encode())
        if files.paged:
            write_report(page, result, source=scan.source or path.name)
        drawn = figures(result, files.figures) if files.figures else {}
    except KeyboardInterrupt:
        way_on = (
            f"run the same command to continue from {folder}"
            if _has_stages(folder)
            else "nothing was kept yet"
        )
        raise InterruptedRunError(f"interrupted; {way_on}") from None
    except OutputError as error:
        way_on = f"; what was computed is in {folder}; continue from it with --run {folder}"
        raise OutputError(f"{error}{way_on if _has_stages(folder) else ''}") from error
    if files.run_folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    print_line(f"{out}: {outcome(result)}; picture {picture}")
    if result.heldout is not None:
        print_line(f"held-out views: {heldout_summary(result.heldout)}")
    if drawn:
        print_line(f"{files.figures}: {len(drawn)} figures")
    if files.paged:
        bars = f"; {result.method} has no error bars"
        if result.std is not None:
            bars = ", its error bars, and whether to believe them"
        print_line(f"{page}: open it in a browser; it shows the image{bars}")


def _check_outputs(
    out: Path, beside: list[Path], inputs: dict[str, Path | None], further: list[Path]
) -> None:
    """Refuse outputs that cannot be written, or that would replace a file which is not ours.

    Args:
        beside: further files named after ``out``.
        inputs: what must not be replaced, by description.
        further: files in folders of their own.
    """
    from ct_dip.files import check_writable

    for path in beside:
        if path.exists() and not out.exists():
            raise InputError(f"{path} exists and belongs to no result; choose another --out, or remove it")
    for path in (out, *beside):
        for what, source in inputs.items():
            if source is not None and source.exists() and path.exists() and path.samefile(source):
                raise InputError(f"--out {out} would replace {what}; choose another name")
    for path in (out, *beside, *further):
        check_writable(path)


def _has_stages(folder: Path) -> bool:
    return any(folder.glob("*.npz"))


def outcome(result: "Prediction") -> str:
    """Describe a result in one line."""
    seconds = sum(result.seconds.values())
    against = " against the reference" if result.comparison and result.comparison.name == "reference" else ""
    row = {} if result.scores is None else result.scores.row()
    quality = ""
    if row.get("psnr") is not None:
        quality += f", {row['psnr']:.2f} dB{against}"
    if row.get("log_likelihood_1") is not None:
        quality += f", {row['log_likelihood_1']:.2f} nats per pixel"
    if row.get("coverage_95") is not None:
        quality += f", 95 % intervals cover {row['coverage_95']:.1%}"
    rows, columns = result.mean.shape
    return f"{result.method} of {rows} × {columns} pixels in {format_duration(seconds)}{quality}"


def heldout_summary(heldout: "HeldoutScores") -> str:
    """Describe in one line how well held-out views were predicted."""
    text = f"{heldout.measurements} measurements that the reconstruction did not see"
    if not heldout.error_bars:
        return f"{text}; their mean square error is {heldout.misfit.value:.3g} times the noise"
    covered = heldout.coverage[0.95]
    return (
        f"{covered.value:.1%} of {text} are inside their 95 % intervals; residuals are "
        f"{heldout.rms_z.value:.2f} times what they should be"
    )
