"""``ct-dip reconstruct``: a result file and a picture from a scan file."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ct_dip.cli.console import ConsoleProgress, message
from ct_dip.cli.options import Verbose, check_result_name
from ct_dip.errors import InputError

if TYPE_CHECKING:
    from ct_dip.data.result import Result


def reconstruct(
    scan: Annotated[Path, typer.Argument(help="Scan file.")],
    out: Annotated[Path, typer.Option(help="Result file to write (.h5); a PNG and a YAML go beside it.")],
    method: Annotated[str | None, typer.Option(help="fbp, cgls, tv (the default), dip or lin-dip.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="fast, balanced (the default), thorough, or auto: by the image's size.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, as tv.strength=0.5; repeatable.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option(help="Ray transform: auto, sparse, astra, odl or tomosipo.")
    ] = None,
    kernel: Annotated[str | None, typer.Option(help="Ray weights: auto, line, linear or strip.")] = None,
    hyperprior: Annotated[
        str | None, typer.Option(help="Of lin-dip: auto (the default), weak, none or tv-predcp.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads of torch. Default: all; use 1 when jobs share cores.", min=1),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of every random choice.", min=0)] = None,
    run_folder: Annotated[
        Path | None,
        typer.Option(
            "--run", help="Folder for checkpoints of a long fit. Default: beside the result, while it runs."
        ),
    ] = None,
    budget_memory: Annotated[
        str | None, typer.Option(help="Memory that the job may take, as 4G. Default: half of the free.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Reconstruct a scan; write the result, a picture of it, and the settings that repeat it."""
    check_result_name(out, "a result")
    import yaml

    from ct_dip.config import load_config
    from ct_dip.data.result import write_result
    from ct_dip.data.scan_file import read_scan
    from ct_dip.files import check_writable, write_bytes
    from ct_dip.pipeline import reconstruct as run
    from ct_dip.report.figures import reconstruction_panel, save_png

    chosen = [*(set_ or ()), *([f"inference.hyperprior={hyperprior}"] if hyperprior else [])]
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
    picture, repeat = out.with_suffix(".png"), out.with_suffix(".yaml")
    for path in (picture, repeat):
        if path.exists() and not out.exists():
            raise InputError(f"{path} exists and belongs to no result; choose another --out, or remove it")
    for path in (out, picture, repeat):
        check_writable(path)
        if path.exists() and path.samefile(scan):
            raise InputError(f"--out {out} is the scan itself; choose another name")
        if config is not None and path.exists() and path.samefile(config):
            raise InputError(f"--out {out} would replace the settings {config}; choose another name")
    progress = ConsoleProgress(verbose=verbose)
    folder = run_folder or out.with_suffix(".run")
    result = run(loaded, settings, progress=progress, memory_budget=budget_memory, run_folder=folder)
    panel = reconstruction_panel(
        {result.method.upper(): result.mean},
        std=result.std,
        pixel_size=result.pixel_size,
        truth=loaded.ground_truth,
        title=loaded.source or None,
    )
    write_result(out, result)
    save_png(panel, picture)
    write_bytes(repeat, yaml.safe_dump(result.settings, sort_keys=True).encode())
    if run_folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    message(f"{out}: {outcome(result)}; picture {picture}")


def outcome(result: "Result") -> str:
    """A result in one line."""
    seconds = sum(result.seconds.values())
    quality = f", {result.metrics['psnr']:.2f} dB" if "psnr" in result.metrics else ""
    if "log_likelihood_per_pixel" in result.metrics:
        quality += (
            f", {result.metrics['log_likelihood_per_pixel']:.2f} nats per pixel, "
            f"95 % intervals cover {result.metrics['coverage_95']:.1%}"
        )
    rows, columns = result.mean.shape
    return f"{result.method} of {rows} × {columns} pixels in {seconds:.2g} s{quality}"
