"""``ct-dip demo``: every step from a scan to a page, on generated data."""

from pathlib import Path
from typing import Annotated

import typer

from ct_dip.cli.console import ConsoleProgress, message, print_line
from ct_dip.cli.options import Seed, Verbose
from ct_dip.cli.reconstruct import outcome
from ct_dip.errors import InputError

COMPARED = ("fbp", "cgls", "tv")
# (pixels, views). Fast, seed 0: TV has 31.0 dB, lin-dip 31.3, and 98 % of the truth in its 95 % intervals.
PRESETS = {"fast": (40, 20), "balanced": (48, 40), "thorough": (56, 50)}


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write the files to.")] = Path("demo"),
    preset: Annotated[
        str,
        typer.Option(
            help="How large an image to reconstruct, and how thoroughly: fast, balanced or thorough."
        ),
    ] = "fast",
    seed: Seed = 0,
    verbose: Verbose = False,
) -> None:
    """Scan a generated object, reconstruct it with error bars, and write a page that explains the result."""
    if preset not in PRESETS:
        raise InputError(f"--preset {preset!r} is not known; choose one of {', '.join(PRESETS)}")
    from ct_dip.compare_methods import compare_results
    from ct_dip.data.result_file import write_result
    from ct_dip.data.scan_file import write_scan
    from ct_dip.data.simulate import NoiseLevel, simulate
    from ct_dip.files import check_writable
    from ct_dip.geometry import Volume
    from ct_dip.methods import load_config
    from ct_dip.pages.compare_page import write_compare_page
    from ct_dip.pages.report_page import write_report
    from ct_dip.pipeline import reconstruct
    from ct_dip.scanners import scanner

    for name in ("scan.h5", "result.h5", "report.html", "comparison.html"):
        check_writable(out / name)
    size, views = PRESETS[preset]
    geometry = scanner(Volume(shape=(size, size)), views=views)
    message(f"scanning a generated object: {size} × {size} pixels, {views} views, 5 % noise")
    progress = ConsoleProgress()
    with progress.stage("simulate the scan"):
        scan = simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05), seed=seed)
    write_scan(scan, out / "scan.h5")
    results = []
    for method in (*COMPARED, "lin-dip"):
        config = load_config(method=method, preset=preset, seed=seed)
        result = reconstruct(scan, config, progress=ConsoleProgress())
        print_line(outcome(result))
        results.append(result)
    write_result(results[-1], out / "result.h5")
    write_report(out / "report.html", results[-1], source=scan.source)
    write_compare_page(out / "comparison.html", compare_results(results, [scan]))
    print_line(f"{out / 'comparison.html'}: the four methods beside the truth")
    print_line(
        f"{out / 'report.html'}: open it in a browser; it shows the image, its error bars, and whether to "
        "believe them"
    )
