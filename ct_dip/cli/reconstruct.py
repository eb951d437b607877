"""``ct-dip reconstruct``: from a scan file to a result, a picture, a page that explains it, and figures."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ct_dip.cli.console import ConsoleProgress, message
from ct_dip.cli.options import Device, Preset, Threads, Verbose, check_result_name
from ct_dip.errors import InputError, InterruptedRunError, OutputError
from ct_dip.progress import format_duration

if TYPE_CHECKING:
    from ct_dip.data.result import Result


def reconstruct(
    scan: Annotated[Path, typer.Argument(help="Scan file.")],
    out: Annotated[Path, typer.Option(help="Result file to write (.h5); PNG, YAML and HTML go beside it.")],
    method: Annotated[str | None, typer.Option(help="fbp, cgls, tv (the default), dip or lin-dip.")] = None,
    preset: Preset = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, as tv.strength=0.5; repeatable.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option(help="Ray transform: auto, sparse, astra, odl or tomosipo.")
    ] = None,
    kernel: Annotated[str | None, typer.Option(help="Ray weights: auto, line, linear or strip.")] = None,
    regime: Annotated[
        str | None, typer.Option(help="Of lin-dip: auto (the default), exact, compressed or iterative.")
    ] = None,
    hyperprior: Annotated[
        str | None, typer.Option(help="Of lin-dip: auto (the default), weak, none or tv-predcp.")
    ] = None,
    device: Device = None,
    threads: Threads = None,
    seed: Annotated[int | None, typer.Option(help="Of every random choice.", min=0)] = None,
    run_folder: Annotated[
        Path | None,
        typer.Option(
            "--run", help="Folder for checkpoints of a long fit. Default: beside the result, while it runs."
        ),
    ] = None,
    resume: Annotated[
        Literal["exact", "compatible"],
        typer.Option(
            help="exact: continue a checkpoint only to the same bits. compatible: also if it began with "
            "another device, number of threads or version of torch."
        ),
    ] = "exact",
    reference: Annotated[
        Path | None,
        typer.Option(
            help="Image in 1/mm to compare with, of a measured scan: .npy, .tif, or a result (.h5)."
        ),
    ] = None,
    reference_noise: Annotated[
        float | None, typer.Option(help="Standard deviation of the reference's pixels, in 1/mm.")
    ] = None,
    report: Annotated[
        bool | None,
        typer.Option(
            "--report/--no-report", help="A page that explains the result. Default: if it has error bars."
        ),
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Folder for all figures, as PNG.")] = None,
    budget_memory: Annotated[
        str | None, typer.Option(help="Memory that the job may take, as 4G. Default: half of the free.")
    ] = None,
    budget_minutes: Annotated[
        float | None,
        typer.Option(
            help="Minutes for compressed or iterative inference after the network's fit; fewer samples if "
            "they are short. No effect on exact inference."
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Reconstruct a scan; write the result, a picture and a page of it, and the settings that repeat it."""
    check_result_name(out, "a result")
    if reference_noise is not None and reference is None:
        raise InputError(
            f"--reference-noise {reference_noise:g} has no effect without --reference; drop it, or give one"
        )
    import yaml

    from ct_dip.config import METHODS, load_config
    from ct_dip.data.comparison import comparison_of_scan, read_reference
    from ct_dip.data.result import write_result
    from ct_dip.data.scan_file import read_scan
    from ct_dip.files import write_bytes
    from ct_dip.pipeline import reconstruct as run
    from ct_dip.report.all_figures import result_panel, write_figures
    from ct_dip.report.figures import save_png
    from ct_dip.report.report_page import write_report

    given = {"inference.hyperprior": hyperprior, "inference.regime": regime}
    chosen = [*(set_ or ()), *(f"{name}={value}" for name, value in given.items() if value)]
    settings = load_config(
        config,
        settings=chosen,
        method=method,
        preset=preset,
        backend=backend,
        kernel=kernel,
        device=device,
        seed=seed,
        threads=threads,
    )
    loaded = read_scan(scan)
    compared = None
    if reference is not None:
        compared = read_reference(reference, loaded.geometry.volume.pixel_size)
    comparison_of_scan(loaded, compared, reference_noise)  # refused now rather than when the image is done
    if run_folder is not None and "dip" not in METHODS[settings.method]:
        raise InputError(
            f"--run {run_folder} has no effect with method {settings.method!r}, which keeps no checkpoints; "
            "drop it"
        )
    paged = settings.method == "lin-dip" if report is None else report
    picture, repeat, page = (out.with_suffix(ending) for ending in (".png", ".yaml", ".html"))
    _check_outputs(
        out,
        [picture, repeat, *([page] if paged else [])],
        {"the scan itself": scan, f"the settings {config}": config, f"the reference {reference}": reference},
        [*([run_folder / "dip.npz"] if run_folder else []), *([figures / "image.png"] if figures else [])],
    )
    progress = ConsoleProgress()
    folder = run_folder or out.with_suffix(".run")
    try:
        result = run(
            loaded,
            settings,
            progress=progress,
            memory_budget=budget_memory,
            budget_minutes=budget_minutes,
            run_folder=folder,
            resume=resume,
            reference=compared,
            reference_std=reference_noise,
        )
        write_result(out, result)
        save_png(result_panel(result, title=loaded.source or None), picture)
        write_bytes(repeat, yaml.safe_dump(result.settings, sort_keys=True).encode())
        if paged:
            write_report(page, result, source=loaded.source or scan.name)
        drawn = write_figures(figures, result) if figures else []
    except KeyboardInterrupt:
        way_on = f"goes on from {folder}" if _has_stages(folder) else "starts again, as nothing was kept yet"
        raise InterruptedRunError(f"interrupted; the same command {way_on}") from None
    except OutputError as error:
        way_on = f"; what was computed is in {folder}, and --run {folder} goes on from it"
        raise OutputError(f"{error}{way_on if _has_stages(folder) else ''}") from error
    if run_folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    message(f"{out}: {outcome(result)}; picture {picture}")
    for warning in result.metrics.get("warnings", ()):
        message(f"warning: {warning}")
    if drawn:
        message(f"{figures}: {len(drawn)} figures")
    if paged:
        message(f"{page}: open it in a browser: what it is, how sure we are, and why")


def _check_outputs(
    out: Path, beside: list[Path], inputs: dict[str, Path | None], further: list[Path]
) -> None:
    """Refuse now what could not be written later, and what would destroy a file that is not ours.

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


def outcome(result: "Result") -> str:
    """A result in one line."""
    seconds = sum(result.seconds.values())
    against = " against the reference" if result.metrics.get("compared_with") == "reference" else ""
    quality = f", {result.metrics['psnr']:.2f} dB{against}" if "psnr" in result.metrics else ""
    if "log_likelihood_per_pixel" in result.metrics:
        quality += (
            f", {result.metrics['log_likelihood_per_pixel']:.2f} nats per pixel, "
            f"95 % intervals cover {result.metrics['coverage_95']:.1%}"
        )
    rows, columns = result.mean.shape
    return f"{result.method} of {rows} × {columns} pixels in {format_duration(seconds)}{quality}"
