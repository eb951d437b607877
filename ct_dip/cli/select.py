"""``ct-dip select``: find the settings that suit a scan."""

from pathlib import Path
from typing import Annotated

import typer

from ct_dip.cli.compare import write_and_show
from ct_dip.cli.console import ConsoleProgress
from ct_dip.cli.options import Budget, Device, Method, OptionalSeed, Preset, Threads, Verbose
from ct_dip.errors import InputError, InterruptedRunError

_SAYS = {"heldout_log_density": "held-out views choose", "evidence": "evidence chooses"}


def select(
    scan: Annotated[Path, typer.Argument(help="Scan file.")],
    over: Annotated[
        list[str],
        typer.Option(
            help="Try these values, for example dip.strength=0.1,0.3 or dip.channels=[16,16],[32,32]; repeat "
            "for more settings."
        ),
    ],
    method: Method = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Folder to write the page, the tables and the results to; results that it holds already are "
            "reused."
        ),
    ] = Path("selection"),
    preset: Preset = None,
    config: Annotated[
        Path | None, typer.Option(help="Read settings that all runs share from this YAML file.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change one setting for all runs, for example dip.max_steps=500; repeat for more."
        ),
    ] = None,
    device: Device = None,
    threads: Threads = None,
    seed: OptionalSeed = None,
    budget_memory: Budget = None,
    verbose: Verbose = False,
) -> None:
    """Try every combination of some settings on a scan, and rank them by held-out views and by evidence."""
    from ct_dip.compare_methods import compare
    from ct_dip.pages.comparison_files import check_folder
    from ct_dip.select_settings import choices, configurations, read_over

    tried = [read_over(each) for each in over]
    if len(dict(tried)) < len(tried):
        raise InputError("--over names a setting twice; give all of its values at once, with commas")
    options = {"preset": preset, "device": device, "threads": threads, "seed": seed}
    configs = configurations(dict(tried), method=method, config=config, settings=set_ or (), **options)
    check_folder(out)
    try:
        table = compare(
            scan, configs, heldout=True, out=out, memory_budget=budget_memory, progress=ConsoleProgress
        )
    except KeyboardInterrupt:
        raise InterruptedRunError(f"interrupted; run the same command to continue from {out}") from None
    chosen = [f"{_SAYS[column]} {name}{table.doubt(column)}" for column, name in choices(table).items()]
    write_and_show(out, table, "; ".join(chosen) or "nothing tells these settings apart")
