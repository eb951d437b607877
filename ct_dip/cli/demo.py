"""``ct-dip demo``: the whole way on generated data."""

from pathlib import Path
from typing import Annotated

import typer

from ct_dip.cli.console import ConsoleProgress, message
from ct_dip.cli.options import Seed, Verbose
from ct_dip.cli.reconstruct import outcome
from ct_dip.errors import InputError

# (pixels, views)
DEMONSTRATED = ("fbp", "cgls", "tv")  # a network fit takes a minute; see reconstruct --method dip
PRESETS = {"fast": (128, 60), "balanced": (192, 90), "thorough": (256, 120)}


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("demo"),
    preset: Annotated[str, typer.Option(help="fast, balanced or thorough: the image size.")] = "fast",
    seed: Seed = 0,
    verbose: Verbose = False,
) -> None:
    """Simulate a walnut, scan it, reconstruct it in three ways, and write a page that compares them."""
    if preset not in PRESETS:
        raise InputError(f"--preset {preset!r} is not known; choose one of {', '.join(PRESETS)}")
    from ct_dip.config import load_config
    from ct_dip.data.result import write_result
    from ct_dip.data.scan_file import write_scan
    from ct_dip.data.simulate import NoiseLevel, simulate
    from ct_dip.files import check_writable
    from ct_dip.geometry import Volume
    from ct_dip.pipeline import reconstruct
    from ct_dip.report.page import write_comparison
    from ct_dip.scanners import scanner

    for name in ("scan.h5", "fbp.h5", "cgls.h5", "result.h5", "report.html"):
        check_writable(out / name)
    size, views = PRESETS[preset]
    geometry = scanner(Volume(shape=(size, size)), views=views)
    message(f"scanning a generated walnut: {size} × {size} pixels, {views} views, 2 % noise")
    progress = ConsoleProgress(verbose=verbose)
    with progress.stage("simulate the scan"):
        scan = simulate("walnut", geometry, noise=NoiseLevel(relative=0.02), seed=seed)
    write_scan(out / "scan.h5", scan)
    results = []
    for method in DEMONSTRATED:
        result = reconstruct(scan, load_config(method=method), progress=ConsoleProgress(verbose=verbose))
        # The last method is the best that is offered; its file has the plain name.
        name = "result.h5" if method == DEMONSTRATED[-1] else f"{method}.h5"
        write_result(out / name, result)
        message(f"{out / name}: {outcome(result)}")
        results.append(result)
    write_comparison(out / "report.html", scan, results)
    message(f"{out / 'report.html'}: open it in a browser to see the three images beside the truth")
