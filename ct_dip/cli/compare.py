"""``ct-dip compare``: compare methods on the same scans, or existing results, in one table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ct_dip.cli.console import ConsoleProgress, print_line, print_table
from ct_dip.cli.options import Budget, Device, MethodsConfig, OptionalSeed, Preset, Settings, Threads, Verbose
from ct_dip.errors import CtDipError, InputError, InterruptedRunError

if TYPE_CHECKING:
    from ct_dip.data.method_table import MethodTable


def compare(
    files: Annotated[
        list[Path], typer.Argument(help="Scan files to reconstruct, or result files to compare as they are.")
    ],
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods", "--method", help="Methods to compare, separated by commas. Default: fbp,tv,lin-dip."
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder to write the page, the tables and the results to; results that it holds already are "
            "reused."
        ),
    ] = Path("comparison"),
    heldout: Annotated[
        bool | None,
        typer.Option(
            "--heldout/--no-heldout",
            help="Run every method again without some views and score how well it predicts them. Default: "
            "only for scans without a ground truth.",
        ),
    ] = None,
    folds: Annotated[
        int | None, typer.Option(help="Hold out one in this many views. Default: 5.", min=2)
    ] = None,
    preset: Preset = None,
    config: MethodsConfig = None,
    set_: Settings = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            help="Compare with this image in 1/mm, for a single measured scan: .npy, .tif, or a result file."
        ),
    ] = None,
    reference_noise: Annotated[
        float | None, typer.Option(help="Standard deviation of the reference's pixels, in 1/mm.")
    ] = None,
    device: Device = None,
    threads: Threads = None,
    seed: OptionalSeed = None,
    budget_memory: Budget = None,
    budget_minutes: Annotated[
        float | None,
        typer.Option(
            help="Stop the inference of each run after this many minutes, for methods that can be cut short."
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Compare methods on the same scans, and write a page, a CSV file and a LaTeX table of their scores."""
    from ct_dip.data.hdf5 import file_kind
    from ct_dip.pages.compare_page import ranking_sentences
    from ct_dip.pages.comparison_files import check_folder

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
            raise InputError(f"{', '.join(unused)}: no effect on existing results; drop it")
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
            raise InterruptedRunError(f"interrupted; run the same command to continue from {out}") from None
    write_and_show(out, table, ranking_sentences(table)[0])


def write_and_show(out: Path, table: "MethodTable", title: str) -> None:
    """Write the page and the tables of a comparison, and print its summary."""
    from ct_dip.data.column_legend import legend_path
    from ct_dip.pages.comparison_files import write_comparison

    page, csv, latex = write_comparison(out, table)
    print_table(title, summary(table))
    if table.pixels_differ:
        print_line(table.pixels_differ)
    if not any(row.prediction for row in table.rows):
        raise CtDipError(f"no run finished: {table.rows[0].error}")
    print_line(
        f"{page}: open it in a browser; {csv} has every figure, {legend_path(csv).name} what "
        f"they mean, {latex} the main ones"
    )


def summary(table: "MethodTable") -> dict[str, str]:
    """Summarise every method in a line, best first."""
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
