"""``ct-dip plan``: what a reconstruction would take."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ct_dip.cli.console import print_json, print_table
from ct_dip.cli.options import Device, Preset, Threads, Verbose
from ct_dip.progress import format_duration

if TYPE_CHECKING:
    from ct_dip.plan import Plan


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
    from ct_dip import memory
    from ct_dip.data.scan_file import read_scan
    from ct_dip.devices import pick_device, pick_threads, use_threads
    from ct_dip.methods import load_config
    from ct_dip.pipeline import plan_run

    settings = load_config(
        config,
        settings=set_ or (),
        method=method or (None if config else "lin-dip"),
        preset=preset,
        device=device,
        threads=threads,
    )
    loaded = read_scan(scan)
    settings = settings.resolved(loaded.geometry.domain_shape)
    with use_threads(pick_threads(settings.threads, loaded.geometry.domain_shape)):
        on_cpu = pick_device(settings.device).type == "cpu"  # where work is tried
        planned = plan_run(loaded, settings, budget=memory.memory_budget(budget_memory), measure=on_cpu)
    if as_json:
        print_json(facts(planned))
    else:
        print_table(f"{scan}, method {planned.method}", summary(planned))


def facts(plan: "Plan") -> dict[str, Any]:
    """Every number of a plan."""
    return {
        "method": plan.method,
        "pixels": plan.pixels,
        "measurements": plan.measurements,
        **plan.facts,
        "bytes": plan.bytes,
        "budget": plan.budget,
        "fits": plan.bytes <= plan.budget,
        "seconds": plan.seconds,
        "stages": [vars(stage) for stage in plan.stages],
    }


def summary(plan: "Plan") -> dict[str, str]:
    """A plan in a few lines."""
    from ct_dip.memory import format_bytes

    lines = {"sizes": f"{plan.pixels} pixels, {plan.measurements} measurements"}
    lines |= {name: text for name, text in plan.facts.items() if isinstance(text, str)}
    for stage in plan.stages:
        parts = [format_bytes(stage.bytes)]
        if stage.passes:
            parts.append(f"about {stage.passes} network passes")
        if stage.seconds is not None:
            parts.append(f"about {format_duration(stage.seconds)}" + (" at most" if stage.passes else ""))
        lines[stage.name] = ", ".join(parts)
    verdict = f"{format_bytes(plan.bytes)} at the peak; the budget is {format_bytes(plan.budget)}"
    if plan.bytes > plan.budget:
        verdict += f": it does NOT fit; {plan.advice}"
    lines["memory"] = verdict
    if plan.seconds is not None:
        lines["time"] = f"about {format_duration(plan.seconds)} in all, at most"
    return lines
