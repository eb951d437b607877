"""``ct-dip compare``: methods on the same scans, or results that are there already, in one table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ct_dip.cli.console import ConsoleProgress, message, print_table
from ct_dip.cli.options import Device, Preset, Threads, Verbose
from ct_dip.errors import CtDipError, InputError, InterruptedRunError

if TYPE_CHECKING:
    from ct_dip.data.method_table import MethodTable


def compare(
    files: Annotated[
        list[Path], typer.Argument(help="Scan files; or result files, which are taken as they are.")
    ],
    methods: Annotated[
        str | None,
        typer.Option(help="As ct-dip methods lists them, with commas. Default: fbp,tv,lin-dip."),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the page, the tables, and results, which are not made twice.")
    ] = Path("comparison"),
    heldout: Annotated[
        bool | None,
        typer.Option(
            "--heldout/--no-heldout",
            help="Run every method once more on fewer views, and let it predict the others. Default: for "
            "scans without a ground truth.",
        ),
    ] = None,
    folds: Annotated[
        int | None, typer.Option(help="Hold out one view in so many. Default: 5.", min=2)
    ] = None,
    preset: Preset = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings of the methods.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, as tv.strength=0.5; repeatable.")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(help="Image in 1/mm to compare with, of one measured scan: .npy, .tif, or a result."),
    ] = None,
    reference_noise: Annotated[
        float | None, typer.Option(help="Standard deviation of the reference's pixels, in 1/mm.")
    ] = None,
    device: Device = None,
    threads: Threads = None,
    seed: Annotated[int | None, typer.Option(help="Of every random choice.", min=0)] = None,
    budget_memory: Annotated[
        str | None, typer.Option(help="Memory that every run may take, as 4G. Default: half of the free.")
    ] = None,
    budget_minutes: Annotated[
        float | None, typer.Option(help="Of every run, for methods that can be cut short.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Compare methods on the same scans; write a page, a CSV and a LaTeX table of how they did."""
    from ct_dip.data.hdf5 import file_kind
    from ct_dip.pages.compare_page import ranking_sentences
    from ct_dip.pages.comparison_files import check_folder, write_comparison

    kinds = {path: file_kind(path) for path in files}
    if len(set(kinds.values())) > 1:
        first = {kind: next(path for path in files if kinds[path] == kind) for kind in ("scan", "result")}
        raise InputError(
            f"{first['scan']} is a scan and {first['result']} a result; give scans, on which the methods are "
            "run, or results, which are compared as they are"
        )
    check_folder(out)
    options: dict[str, object] = {"preset": preset, "device": device, "threads": threads, "seed": seed}
    if kinds[files[0]] == "result":
        given: dict[str, object] = options | {
            "methods": methods,
            "heldout": heldout,
            "folds": folds,
            "config": config,
        }
        given |= {"set": set_, "reference": reference, "reference-noise": reference_noise}
        given |= {"budget-memory": budget_memory, "budget-minutes": budget_minutes}
        if unused := [f"--{name}" for name, value in given.items() if value is not None]:
            raise InputError(f"{', '.join(unused)}: no effect on results that are there already; drop it")
        table = _read(files)
    else:
        from ct_dip.compare_methods import METHODS
        from ct_dip.compare_methods import compare as run
        from ct_dip.data.reference_file import read_reference

        names = METHODS if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
        try:
            table = run(
                files,
                names,
                config=config,
                settings=set_ or (),
                heldout=heldout,
                folds=folds or 5,
                out=out,
                memory_budget=budget_memory,
                budget_minutes=budget_minutes,
                reference=None if reference is None else read_reference(reference),
                reference_std=reference_noise,
                progress=ConsoleProgress,
                **{name: value for name, value in options.items() if value is not None},
            )
        except KeyboardInterrupt:
            raise InterruptedRunError(f"interrupted; the same command goes on from {out}") from None
    page, csv, latex = write_comparison(out, table)
    print_table(ranking_sentences(table)[0], summary(table))
    if not any(row.prediction for row in table.rows):
        raise CtDipError(f"no method finished: {table.rows[0].error}")
    message(f"{page}: open it in a browser; {csv} has every figure, {latex} the main ones")


def summary(table: "MethodTable") -> dict[str, str]:
    """A line for every method, best first."""
    from ct_dip.pages.table_files import MAIN, cell_text

    lines = {}
    for method in table.ranked():
        parts = []
        for name, column in MAIN.items():
            mean = table.mean(method, name)
            if mean is not None:
                value, error = cell_text(name, mean)
                parts.append(f"{column.title} {value}" + (f" ± {error}" if error else ""))
        errors = [f"failed: {row.error}" for row in table.rows if row.method == method and row.error]
        lines[method] = "; ".join([*parts, *errors])
    return lines


def _read(files: list[Path]) -> "MethodTable":
    from ct_dip.compare_methods import compare_results
    from ct_dip.data.result_file import read_result

    return compare_results([read_result(path) for path in files])
