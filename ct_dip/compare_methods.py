"""`compare`: compare methods on the same scans with the same budgets, or existing results, in one table."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ct_dip import memory
from ct_dip.arrays import Floats
from ct_dip.config import RunConfig
from ct_dip.data.comparison import comparison_of_scan
from ct_dip.data.method_table import MethodTable, Row, ScanLabel
from ct_dip.data.prediction import Prediction
from ct_dip.data.result_file import read_result, write_result
from ct_dip.data.run_names import run_names
from ct_dip.data.scan import Scan
from ct_dip.data.scan_file import read_scan
from ct_dip.errors import CtDipError, InputError, OutputError, ResultError
from ct_dip.evaluation.heldout import score_heldout
from ct_dip.files import check_writable
from ct_dip.methods import find_method, load_config
from ct_dip.operators import ray_transform
from ct_dip.pipeline import AnyScan, reconstruct, versions
from ct_dip.progress import Progress
from ct_dip.progress_bars import default_progress
from ct_dip.run_together import Batches, batch_key
from ct_dip.text import shortened

METHODS = ("fbp", "tv", "lin-dip")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Task:
    """What all methods are given on one scan; ``configs`` are those of all runs on it."""

    scan: Scan
    configs: Sequence[RunConfig]
    name: str
    heldout: bool
    folds: int
    memory_budget: int | str | None
    budget_minutes: float | None
    reference: Floats | None
    reference_std: float | None
    progress: Callable[[], Progress]
    folder: Path | None
    batches: Batches = dataclasses.field(default_factory=Batches)

    def file(self, config: RunConfig) -> Path | None:
        """Where a result is kept: under the names of scan and method, and a digest of all that decides it."""
        if self.folder is None:
            return None
        told = config.resolved(self.scan.geometry.domain_shape).model_dump(mode="json")
        budgets = [self.memory_budget, self.budget_minutes, self.reference_std]
        identity = hashlib.sha256(
            json.dumps([self.scan.digest, told, budgets, versions()["ct_dip"]], sort_keys=True).encode()
        )
        for image in (self.scan.ground_truth, self.scan.mask, self.reference):
            identity.update(b"-" if image is None else image.tobytes())
        name = re.sub(r"[^\w.-]+", "_", f"{shortened(self.name, 60)}-{config.method}")
        return self.folder / f"{name}-{identity.hexdigest()[:12]}.h5"

    def run(self, scan: Scan, config: RunConfig, run_folder: Path | None = None) -> Prediction:
        """Reconstruct the scan, or a part of it, as far as the method can make use of what is given."""
        method = find_method(config.method)
        if method.projects and scan is self.scan:  # the matrix is cached: the first method would pay for all
            with contextlib.suppress(CtDipError):
                ray_transform(
                    scan.geometry, config.backend, kernel=config.kernel, memory_budget=self.memory_budget
                )
        memory.give_back()  # of the method before, which would count as this one's
        if self.budget_minutes is None and (made := self._from_batch(scan, config)) is not None:
            return made
        return reconstruct(
            scan,
            config,
            progress=self.progress(),
            memory_budget=self.memory_budget,
            budget_minutes=self.budget_minutes if method.limits_time else None,
            run_folder=run_folder if method.keeps_stages else None,
            reference=self.reference if scan is self.scan else None,
            reference_std=self.reference_std if scan is self.scan else None,
        )

    def _from_batch(self, scan: Scan, config: RunConfig) -> Prediction | None:
        """Return a run that was made as one batch with others that are to follow; ``None``: make it alone."""
        to_follow = itertools.dropwhile(lambda each: each is not config, self.configs)
        mates = [each for each in to_follow if batch_key(each) == batch_key(config)]
        against = (self.reference, self.reference_std) if scan is self.scan else (None, None)
        return self.batches.take(
            scan,
            [each for each in mates if each is config or self._lacks(scan, each)],
            comparison_of_scan(scan, *against),
            self.memory_budget,
            self.progress,
        )

    def _lacks(self, scan: Scan, config: RunConfig) -> bool:
        """Whether nothing is kept of what a run on the scan, or on a part of its views, would give."""
        path = self.file(config)
        kept = None if path is None else _kept(path, self.scan, config)
        return kept is None or (scan is not self.scan and not self.has_heldout(kept))

    def has_heldout(self, prediction: Prediction) -> bool:
        """Whether held-out views of the folds that are asked for were scored."""
        return prediction.heldout is not None and prediction.heldout.folds == self.folds


def compare(
    scans: AnyScan | Sequence[AnyScan],
    methods: Sequence[str | RunConfig] = METHODS,
    *,
    config: str | Path | None = None,
    settings: Sequence[str] = (),
    heldout: bool | None = None,
    folds: int = 5,
    out: str | Path | None = None,
    memory_budget: int | str | None = None,
    budget_minutes: float | None = None,
    reference: Floats | None = None,
    reference_std: float | None = None,
    progress: Callable[[], Progress] = default_progress,
    **options: Any,
) -> MethodTable:
    """Reconstruct scans by several methods, and tabulate their scores.

    A method that fails on a scan has a row that says why. Methods are ranked by `MethodTable.criterion`.

    Args:
        scans: `Scan` objects or paths of scan files.
        methods: names, or configurations, which may be several of one method.
        config: YAML file with settings of any of the methods; ``settings`` as ``["tv.strength=0.5"]`` go to
            the methods that have them. Both are for methods that are named.
        heldout: whether to run every method once more on fewer views, and to score the others
            (`ct_dip.evaluation.heldout`); ``None``: for scans without a ground truth.
        folds: that the views are dealt into, of which one is held out.
        out: folder where every result is kept, and taken from if it is there with the same scan, settings
            and budgets.
        memory_budget, budget_minutes: of every single run; see `ct_dip.reconstruct`. Minutes are for methods
            that can be cut short.
        reference, reference_std: of a single scan; see `ct_dip.reconstruct`.
        progress: factory of each run's `Progress`.
        options: keys of the configuration's top level for all methods, as ``seed=1`` or ``preset="fast"``.
    """
    named = _named_scans([scans] if isinstance(scans, Scan | str | Path) else scans)
    configs = list(method_configs(methods, config, settings, options))
    if reference is not None and len(named) > 1:
        raise InputError("a reference belongs to one scan; compare the scans one by one")
    tasks = []
    for name, scan in named.items():
        comparison_of_scan(scan, reference, reference_std)  # refused now rather than after the first run
        tasks.append(
            _Task(
                scan=scan,
                configs=configs,
                name=name,
                heldout=scan.ground_truth is None if heldout is None else heldout,
                folds=folds,
                memory_budget=memory_budget,
                budget_minutes=budget_minutes,
                reference=reference,
                reference_std=reference_std,
                progress=progress,
                folder=None if out is None else Path(out) / "results",
            )
        )
    pairs = [(task, each) for task in tasks for each in configs]
    for task, each in pairs:  # before hours of work
        if (path := task.file(each)) is not None:
            check_writable(path)
            _kept(path, task.scan, each)
    names = run_names([(t.scan.digest, each.method, each.model_dump(mode="json")) for t, each in pairs])
    rows = [_row(task, each, name) for (task, each), name in zip(pairs, names, strict=True)]
    return MethodTable(rows=rows, scans={scan.digest: ScanLabel.of(scan, n) for n, scan in named.items()})


def compare_results(predictions: Sequence[Prediction], scans: Sequence[Scan] = ()) -> MethodTable:
    """Tabulate the scores of existing results; the digest says which are of one scan.

    Args:
        scans: those that are at hand, for their names.
    """
    if not predictions:
        raise InputError("there are no results to compare; give at least one")
    names = run_names([(each.scan_digest, each.method, each.settings) for each in predictions])
    compared: dict[str, set[tuple[str, bytes]]] = {}
    for each in predictions:
        if each.comparison is not None:
            image = each.comparison.image.astype("f4")
            compared.setdefault(each.scan_digest, set()).add((each.comparison.name, image.tobytes()))
    other = ("Results of this scan were compared with different images, so that their scores are not alike.",)
    rows = [
        Row(
            scan_digest=each.scan_digest,
            method=name,
            prediction=_slim(each),
            warnings=other if len(compared.get(each.scan_digest, ())) > 1 else (),
        )
        for name, each in zip(names, predictions, strict=True)
    ]
    return MethodTable(rows=rows, scans={scan.digest: ScanLabel.of(scan) for scan in scans})


def _named_scans(scans: Sequence[AnyScan]) -> dict[str, Scan]:
    """Scans by what a reader calls them."""
    if not scans:
        raise InputError("there are no scans to compare the methods on; give at least one")
    named: dict[str, Scan] = {}
    names: dict[str, str] = {}
    for number, given in enumerate(scans, start=1):
        scan = given if isinstance(given, Scan) else read_scan(given)
        name = (scan.source or f"scan {number}") if isinstance(given, Scan) else Path(given).stem
        name = name if name not in named else f"{name} ({number})"
        if scan.digest in names:
            raise InputError(f"{names[scan.digest]} and {name} are the same scan; drop one of them")
        names[scan.digest] = name
        named[name] = scan
    return named


def method_configs(
    methods: Sequence[str | RunConfig],
    path: str | Path | None,
    settings: Sequence[str],
    options: Mapping[str, Any],
) -> Iterator[RunConfig]:
    """Yield the configuration of every method; see `compare` for what is given."""
    if not methods or isinstance(methods, str):
        raise InputError(f"methods must be a list of names, as {list(METHODS)}, got {methods!r}")
    named = [each for each in methods if isinstance(each, str)]
    if len(set(named)) < len(named):
        twice = next(name for name in named if named.count(name) > 1)
        raise InputError(f"method {twice!r} is given twice; drop one, or give configurations that differ")
    if unknown := options.keys() - RunConfig.model_fields.keys() | options.keys() & {"method"}:
        raise InputError(
            f"{', '.join(sorted(unknown))}: not an option that all methods have; write "
            "settings=['section.key=value']"
        )
    sections = {name: find_method(name).config.sections() for name in named}
    section_of = {each: each.partition("=")[0].partition(".")[0].strip() for each in settings}
    shared = RunConfig.model_fields
    for section in section_of.values():
        if section not in shared and not any(section in own for own in sections.values()):
            raise InputError(
                f"settings of {shortened(section)!r} have no effect with {', '.join(named) or 'no name'}; "
                "drop them, or add the method that they are for"
            )
    for each in methods:
        if not isinstance(each, str):
            yield each
            continue
        unused = set() if find_method(each).projects else {"backend", "kernel"}
        yield load_config(
            path,
            settings=[
                s
                for s, key in section_of.items()
                if (key in shared or key in sections[each]) and key not in unused
            ],
            **{key: value for key, value in options.items() if key not in unused},
            method=each,
        )


def _row(task: _Task, config: RunConfig, name: str) -> Row:
    """Run a method on a scan, or take the result that is kept."""
    path = task.file(config)
    note = task.progress().note
    try:
        prediction = None if path is None else _kept(path, task.scan, config)
        note(f"{name} on {task.name}" + (f", taken from {path}" if prediction is not None else ""))
        if prediction is None:
            prediction = _run_and_keep(task, config, path)
    except OutputError:
        raise
    except Exception as error:  # the other methods still have something to show
        text = str(error) or type(error).__name__
        note(f"{name} on {task.name} failed: {text}")
        return Row(scan_digest=task.scan.digest, method=name, error=text)
    warnings: tuple[str, ...] = ()
    if task.heldout and not task.has_heldout(prediction):
        note(f"{name} on {task.name}, again without some views, which it will predict")
        try:
            prediction = _with_heldout(task, config, prediction, path)
        except OutputError:
            raise
        except Exception as error:
            warnings = (f"Held-out views could not be scored: {str(error) or type(error).__name__}.",)
    return Row(scan_digest=task.scan.digest, method=name, prediction=_slim(prediction), warnings=warnings)


def _run_and_keep(task: _Task, config: RunConfig, path: Path | None) -> Prediction:
    stages = None if path is None else path.with_suffix(".run")
    prediction = task.run(task.scan, config, stages)
    if path is not None and stages is not None:
        write_result(prediction, path)
        shutil.rmtree(stages, ignore_errors=True)
    return prediction


def _with_heldout(task: _Task, config: RunConfig, prediction: Prediction, path: Path | None) -> Prediction:
    stages = None if path is None else path.with_suffix(".heldout.run")
    scores = score_heldout(
        task.scan,
        lambda training: task.run(training, config, stages),
        folds=task.folds,
        transform=lambda geometry: ray_transform(geometry, kernel=config.kernel),
    )
    prediction = dataclasses.replace(prediction, heldout=scores)
    if path is not None and stages is not None:
        write_result(prediction, path)
        shutil.rmtree(stages, ignore_errors=True)
    return prediction


def _kept(path: Path, scan: Scan, config: RunConfig) -> Prediction | None:
    """Read a result that an earlier comparison wrote, if it did.

    Raises:
        InputError: the file is something else, which must not be replaced.
    """
    if not path.exists():
        return None
    try:
        prediction = read_result(path)
    except ResultError as error:
        raise InputError(f"{path} is in the way ({error}); remove it, or choose another folder") from error
    if (prediction.scan_digest, prediction.method) != (scan.digest, config.method):
        raise InputError(f"{path} holds another result; remove it, or choose another folder")
    return prediction


def _slim(prediction: Prediction) -> Prediction:
    """Leave out what a table does not need, as many rows are held at once."""
    return dataclasses.replace(
        prediction.plain(), samples=None, std_error=None, images={}, sinogram=None, patches=(), traces={}
    )
