"""``ct-dip evaluate``: methods on a whole dataset, on this machine or a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ct_dip.cli.console import ConsoleProgress, message, print_line, print_table
from ct_dip.cli.options import Device, MethodsConfig, OptionalSeed, Preset, Settings, Verbose
from ct_dip.errors import CtDipError, InterruptedRunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ct_dip.batch.table import Row

_SHOWN = ("psnr", "ssim", "log_likelihood_1", "coverage_95_near", "heldout_log_density")


def evaluate(
    dataset: Annotated[
        list[str],
        typer.Argument(
            metavar="DATASET...",
            help="LoDoPaB or 2DeteCT folder, folder of scan files, the scan files themselves, or a CSV "
            "manifest.",
        ),
    ],
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            "--method",
            help="Methods to run, separated by commas, for example fbp,tv,lin-dip.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(help="Folder to write results and scores to; run the same command again to continue."),
    ],
    items: Annotated[
        str | None, typer.Option(help="Items to run, for example 0:100 or 3,7,20:30. Default: all.")
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            help="Part of the dataset, for example test or validation (LoDoPaB) or mode2 (2DeteCT)."
        ),
    ] = None,
    views: Annotated[
        int | None, typer.Option(help="Keep this many views of every scan, evenly spaced.", min=1)
    ] = None,
    bin: Annotated[
        int, typer.Option(help="Combine this many neighbouring detector bins into one.", min=1)
    ] = 1,
    size: Annotated[
        int | None,
        typer.Option(help="Number of pixels a side of 2DeteCT's images. Default: 1024.", min=2),
    ] = None,
    preset: Preset = None,
    config: MethodsConfig = None,
    set_: Settings = None,
    heldout: Annotated[
        bool,
        typer.Option(
            "--heldout",
            help="Run again without a fifth of the views and score how these are predicted, as --set "
            "check=views does: for scans without a truth.",
        ),
    ] = False,
    seed: OptionalSeed = None,
    device: Device = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of processes; 0 uses this process alone, without Dask. Default: as many as fit.",
            min=0,
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads of each worker. Default: 1, or more if memory leaves cores idle.", min=1),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Run on this Dask scheduler, for example tcp://host:8786.")
    ] = None,
    slurm: Annotated[
        str | None,
        typer.Option(help="Start SLURM jobs, as partition=main,jobs=4,cores=8,memory=16GB,time=04:00:00."),
    ] = None,
    light: Annotated[bool, typer.Option("--light", help="Keep the scores but no result files.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed items again.")] = False,
    max_failures: Annotated[
        int | None,
        typer.Option(help="Stop when more items than this have failed. Default: never stop.", min=0),
    ] = None,
    item_minutes: Annotated[
        float | None, typer.Option(help="Stop an item after this many minutes and count it as failed.")
    ] = None,
    submission: Annotated[
        bool, typer.Option("--submission", help="Write a zip file for the LoDoPaB challenge.")
    ] = False,
    budget_memory: Annotated[
        str | None,
        typer.Option(
            help="Use at most this much memory for all workers, as 16G. Default: half of what is free."
        ),
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Reconstruct and score many items of a dataset; record failures and go on."""
    from ct_dip.batch.evaluate import evaluate as run
    from ct_dip.data.column_legend import legend_path
    from ct_dip.text import counted

    options = {"preset": preset, "seed": seed, "device": device}
    try:
        rows = run(
            dataset[0] if len(dataset) == 1 else dataset,
            [name.strip() for name in methods.split(",") if name.strip()],
            out=out,
            items=items,
            part=part,
            views=views,
            bin=bin,
            side=size,
            config=config,
            settings=[*(set_ or ()), *(["check=views"] if heldout else [])],
            workers=workers,
            threads=threads,
            scheduler=scheduler,
            slurm=slurm,
            memory_budget=budget_memory,
            light=light,
            retry_failed=retry_failed,
            max_failures=max_failures,
            item_minutes=item_minutes,
            submission=submission,
            progress=ConsoleProgress(),
            **{name: value for name, value in options.items() if value is not None},
        )
    except KeyboardInterrupt:
        raise InterruptedRunError(f"interrupted; run the same command to continue from {out}") from None
    print_table(counted(len({row.item for row in rows}), "item"), summary(rows))
    unscored = without_scores(rows)
    if unscored and not submission:
        message(
            f"{', '.join(unscored)}: no truth or reference, and no error bars. To score on held-out views, "
            "run again with --heldout and a new --out."
        )
    failed = [row for row in rows if row.state == "failed"]
    if failed:
        message(f"first failure: {failed[0].label} with {failed[0].method}: {failed[0].error}")
    if len(failed) == len(rows):
        raise CtDipError(f"everything failed; see {out / 'scores.csv'}, and run again with --retry-failed")
    scores = out / "scores.csv"
    print_line(
        f"{scores} has every figure, {legend_path(scores).name} what they mean; ct-dip report {out} "
        "writes the page"
    )


def summary(rows: "Sequence[Row]") -> dict[str, str]:
    """A line for every method: counts, and means over the items that have the figure, with their number."""
    from ct_dip.pages.table_files import MAIN

    lines = {}
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        done = [row for row in own if row.state == "done"]
        counts = {state: sum(row.state == state for row in own) for state in ("done", "failed", "pending")}
        parts = [", ".join(f"{count} {state}" for state, count in counts.items() if count)]
        for name in (*_SHOWN, "seconds"):
            values = [row.seconds if name == "seconds" else row.scores.get(name) for row in done]
            known = [value for value in values if value is not None]
            if known:
                number = f" ({len(known)} of {len(done)} items)" if len(known) < len(done) else ""
                parts.append(f"{MAIN[name].title} {MAIN[name].text(sum(known) / len(known))}{number}")
        lines[method] = "; ".join(parts)
    return lines


def without_scores(rows: "Sequence[Row]") -> list[str]:
    """Methods of which no item that is done has a score."""
    done = [row for row in rows if row.state == "done"]
    scored = {row.method for row in done if any(name in row.scores for name in _SHOWN)}
    return [method for method in dict.fromkeys(row.method for row in done) if method not in scored]
