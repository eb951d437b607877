"""The protocol of the linearised deep-image-prior papers, for any of our methods.

``CT_DIP_DATA=… python -m experiments.kmnist [--images 0:20] [--views 5,10,20,30] [--noise 5] [--methods …]
[--set inference.prior=g]``

KMNIST test images, 28², parallel beam, 41 bins, white noise of so many per cent of the mean line integral.
Every row is kept in ``--out`` as soon as it is measured, and a second run goes on from there; the table of
all rows that were asked for is printed in the end. A setting goes to the methods that have its section, and
into the names of their rows. With ``--published``, the four sinograms that the
published implementation was given instead, with its own figures beside ours.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Container, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.kept_rows import KeptRows
from benchmarks.kmnist import kmnist_scans
from benchmarks.measure import Row, plain
from benchmarks.methods import scored
from ct_dip.data.scan import Scan
from ct_dip.errors import CtDipError, InputError
from ct_dip.memory import keep_freed
from ct_dip.methods import find_method, load_config
from experiments.kmnist.published import CASES, published_cases

METHODS = ("lin-dip", "lin-dip-paper", "mc-dropout", "ensemble", "dip-mll", "tv-gauss", "tv-langevin")
# The covariance of 784 pixels is taken from five samples a pixel, or not at all (`Prediction.covariances`).
SETTINGS = {
    "mc-dropout": ["mc_dropout.passes=4000"],
    "tv-gauss": ["tv_gauss.samples=4000"],
    # As many gradients as by default, of which more are kept.
    "tv-langevin": [
        f"tv_langevin.{setting}" for setting in ("draws=1000", "steps=2", "burn_in=200", "samples=4000")
    ],
}
INDEPENDENT = ("dip-mll",)  # pixels: their log-likelihood is that of the whole image
COLUMNS = {
    "log_likelihood_image": ("log-lik.", ".2f"),
    "log_likelihood_1": ("1×1", ".2f"),
    "crps": ("CRPS", ".4f"),
    "psnr": ("PSNR, dB", ".2f"),
    "coverage_95_near": ("95 % near", ".3f"),
    "cpu_seconds": ("CPU s", ".1f"),
}


class Run(NamedTuple):
    """A method, and settings of its own as ``section.key=value``."""

    method: str
    settings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What tells its rows from others."""
        return ", ".join((self.method, *self.settings))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.kmnist", description=__doc__)
    parser.add_argument("--images", type=_range, help="one, as 7, or several, as 0:50; default 0:20")
    parser.add_argument("--views", type=_integers, help="default 5,10,20,30")
    parser.add_argument("--noise", type=_integers, help="per cent, as 5,10; default 5")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(METHODS))
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        help="a setting for all methods with its section, as inference.prior=g; repeat",
    )
    parser.add_argument(
        "--published",
        action="store_true",
        help="the published implementation's sinograms: images 0 to 2 at 20 views and image 0 at 5, with "
        "5 %% noise; --images and --views choose among them",
    )
    parser.add_argument("--out", type=Path, default=Path("kmnist.jsonl"), help="default kmnist.jsonl")
    arguments = parser.parse_args()
    keep_freed()  # as the command line does
    kept, rows = KeptRows(arguments.out, lambda row: row.case), []
    try:
        runs = list(runs_of(arguments.methods, arguments.set))
        cases = chosen_cases(arguments) if arguments.published else ()
    except CtDipError as error:
        parser.error(str(error))
    for row in published(kept, runs, cases) if arguments.published else protocol(kept, runs, arguments):
        rows.append(row)
        print(row.case, "".join(f", {title} {cell}" for title, cell in cells([row]).items()), file=sys.stderr)
    print(table(rows))


def runs_of(methods: Iterable[str], settings: Iterable[str]) -> Iterator[Run]:
    """Give every setting to the methods that have its section, and check them.

    Raises:
        InputError: a method cannot have it, none has it, or it is no setting.
    """
    unused = set(settings)
    for method in methods:
        sections = find_method(method).config.sections()
        own = tuple(sorted(each for each in set(settings) if each.partition(".")[0] in sections))
        try:
            load_config(method=method, settings=own)
        except InputError as error:
            others = [name for name in methods if name != method] or ["lin-dip"]
            raise InputError(
                f"method {method} cannot run with --set {', '.join(own)} ({error}); leave it out, "
                f"for example --methods {others[0]}"
            ) from error
        unused -= set(own)
        yield Run(method, own)
    if unused:
        raise InputError(f"--set {', '.join(sorted(unused))}: none of the methods has such a section")


def protocol(kept: KeptRows, runs: Iterable[Run], arguments: argparse.Namespace) -> Iterator[Row]:
    """Measure what was not measured before."""
    for run in runs:
        for noise in arguments.noise or [5]:
            for views in arguments.views or [5, 10, 20, 30]:
                for image in arguments.images or range(20):
                    what = {"method": run.name, "views": views, "noise": noise, "image": image}
                    case = f"{views} views, {noise} % noise, image {image}: {run.name}"
                    yield kept.get(case, partial(_simulate_and_measure, case, what, run))


def chosen_cases(arguments: argparse.Namespace) -> list[tuple[int, int]]:
    """Return which published sinograms were asked for, as views and image.

    Raises:
        InputError: none of them is.
    """
    cases = [
        (views, image)
        for views, image in CASES
        if views in (arguments.views or [views]) and image in (arguments.images or [image])
    ]
    if not cases or arguments.noise not in (None, [5]):
        raise InputError(
            "--published has images 0 to 2 at 20 views and image 0 at 5 views, with 5 % noise; choose among "
            "them"
        )
    return cases


def published(
    kept: KeptRows, runs: Iterable[Run], cases: Container[tuple[int, int]] = CASES
) -> Iterator[Row]:
    """Give the published implementation's figures, and those of our methods on the same sinograms."""
    for views, image, scan, figures in published_cases():
        if (views, image) not in cases:
            continue
        case = f"published sinogram, {views} views, image {image}"
        what = {"views": views, "noise": 5, "image": image}
        for name, found in figures.items():
            yield _row(f"{case}: {name}", what | {"method": name, **found})
        for run in runs:
            name = f"{case}: {run.name}"
            yield kept.get(name, partial(measure, name, scan, what | {"method": run.name}, run))


def measure(case: str, scan: Scan, what: dict[str, Any], run: Run) -> Row:
    """Reconstruct one scan by one method."""
    settings = [*SETTINGS.get(run.method, ()), *run.settings]
    found = scored(scan, load_config(method=run.method, settings=settings))
    if run.method in INDEPENDENT and "error" not in found:
        found["log_likelihood_image"] = found["log_likelihood_1"]
    return _row(case, what | found)


def _simulate_and_measure(case: str, what: dict[str, Any], run: Run) -> Row:
    (scan,) = kmnist_scans([what["image"]], views=what["views"], noise=what["noise"] / 100)
    return measure(case, scan, what, run)


def _row(case: str, figures: dict[str, Any]) -> Row:
    found = figures.get("log_likelihood_image")
    return plain("kmnist", case, math.nan if found is None else found, "nats", **figures)


def table(rows: Iterable[Row]) -> str:
    """Return the means of all images as a table, a line for every noise, number of views and method."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.details[name] for name in ("noise", "views", "method")), []).append(row)
    titles = ["noise", "views", "method", "images", *(title for title, _ in COLUMNS.values())]
    lines = [titles, ["---"] * len(titles)]
    for (noise, views, method), members in sorted(groups.items(), key=lambda item: item[0][:2]):
        shown = cells(members)
        lines.append([f"{noise} %", str(views), method, shown.pop("images"), *shown.values()])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cells(rows: list[Row]) -> dict[str, str]:
    """Return means ± standard errors over images, by title; a dash where a method has no such figure."""
    good = [row.details for row in rows if "error" not in row.details]
    shown = {"images": str(len(good)) + (f" of {len(rows)}" if len(good) < len(rows) else "")}
    for name, (title, form) in COLUMNS.items():
        values = [figures[name] for figures in good if figures.get(name) is not None]
        shown[title] = "–"
        if values and len(values) == len(good):
            shown[title] = format(statistics.mean(values), form)
        if len(values) > 1 and name != "cpu_seconds":
            error = statistics.stdev(values) / math.sqrt(len(values))
            shown[title] += f" ± {format(error, form)}"
    return shown


def _range(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end or int(first) + 1))


def _integers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


if __name__ == "__main__":
    main()
