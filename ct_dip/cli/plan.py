"""``ct-dip plan``: what a reconstruction would take."""

from pathlib import Path
from typing import Annotated

import typer

from ct_dip.cli.console import print_json, print_table
from ct_dip.cli.options import Device, Preset, Threads, Verbose


def plan(
    scan: Annotated[Path, typer.Argument(help="Scan file.")],
    method: Annotated[
        str | None, typer.Option(help="As ct-dip methods lists them; lin-dip if not given.")
    ] = None,
    preset: Preset = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, as tv.strength=0.5; repeatable.")
    ] = None,
    device: Device = None,
    threads: Threads = None,
    budget_memory: Annotated[
        str | None, typer.Option(help="Memory that the job may take, as 4G. Default: half of the free.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Every number, on standard output.")] = False,
    verbose: Verbose = False,
) -> None:
    """Say what a reconstruction would do and take, after trying every kind of work for a moment."""
    from ct_dip.methods import load_config
    from ct_dip.pipeline import plan as run

    options = {"method": method, "preset": preset, "device": device, "threads": threads}
    planned = run(scan, load_config(config, settings=set_ or (), **options), memory_budget=budget_memory)
    if as_json:
        print_json(planned.to_dict())
    else:
        print_table(f"{scan}, method {planned.method}", planned.summary())
