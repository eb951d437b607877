"""``ct-dip plan``: estimate the memory and the time of a reconstruction."""

from pathlib import Path
from typing import Annotated

import typer

from ct_dip.cli.console import print_json, print_table
from ct_dip.cli.options import Budget, ConfigFile, Device, Method, Preset, Settings, Threads, Verbose


def plan(
    scan: Annotated[Path, typer.Argument(help="Scan file.")],
    method: Method = None,
    preset: Preset = None,
    config: ConfigFile = None,
    set_: Settings = None,
    device: Device = None,
    threads: Threads = None,
    budget_memory: Budget = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every number as JSON.")] = False,
    verbose: Verbose = False,
) -> None:
    """Estimate the memory and the time of a reconstruction, from a short trial of each kind of work."""
    from ct_dip.methods import load_config
    from ct_dip.pipeline import plan as run

    options = {"method": method, "preset": preset, "device": device, "threads": threads}
    planned = run(scan, load_config(config, settings=set_ or (), **options), memory_budget=budget_memory)
    if as_json:
        print_json(planned.to_dict())
    else:
        print_table(f"{scan}, method {planned.method}", planned.summary())
