"""Where tasks run: in this process, on a Dask cluster of this machine, on one that is there, or on SLURM."""

import contextlib
import importlib
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ct_dip.errors import InputError

_CONNECT_SECONDS = 20
# Dask watches itself many times a second, which takes 3 % of a core in every process.
_QUIET = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "1s"}
_SLURM = {  # options of --slurm, with what they must look like
    "partition": r"[\w.,-]+",
    "account": r"[\w.-]+",
    "jobs": r"[1-9]\d{0,4}",
    "cores": r"[1-9]\d{0,3}",
    "memory": r"[1-9]\d*(\.\d+)?\s*[MGT]i?B?",
    "time": r"(\d+-)?\d{1,3}:\d\d(:\d\d)?",
    "gres": r"[\w.:,-]+",
    "constraint": r"[\w.&|*\[\]()-]+",
}


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """Jobs on a SLURM cluster: ``jobs`` of them, each with ``cores`` that items share.

    Args:
        memory: of a job, as ``16GB``; ``time`` the longest that it may last, as ``04:00:00``.
        others: further options of ``sbatch``, by name.
    """

    partition: str
    jobs: int
    cores: int
    memory: str
    time: str
    others: Mapping[str, str]

    @staticmethod
    def parse(text: str) -> "Slurm":
        """Read ``partition=gpu,jobs=4,cores=8,memory=16GB,time=04:00:00``.

        Raises:
            InputError: names the option, its value and what it may be.
        """
        values: dict[str, str] = {}
        for part in text.split(","):
            name, equals, value = (word.strip() for word in part.partition("="))
            if name not in _SLURM or not equals:
                raise InputError(
                    f"--slurm {part.strip()!r} is not an option; write NAME=VALUE with a name of "
                    f"{', '.join(_SLURM)}"
                )
            if name in values:
                raise InputError(f"--slurm {name} is given twice; drop one of them")
            if not re.fullmatch(_SLURM[name], value):
                raise InputError(f"--slurm {name}={value!r} is not a {name} that SLURM takes; correct it")
            values[name] = value
        if "partition" not in values:
            raise InputError("--slurm needs a partition; write for example --slurm partition=main,jobs=4")
        return Slurm(
            partition=values.pop("partition"),
            jobs=int(values.pop("jobs", "1")),
            cores=int(values.pop("cores", "1")),
            memory=values.pop("memory", "4GB"),
            time=values.pop("time", "24:00:00"),
            others=values,
        )

    @property
    def memory_bytes(self) -> int:
        """Memory of a job, read as Dask does: 1 GB is 10⁹ bytes."""
        match = re.fullmatch(r"([\d.]+)\s*([MGT])(i?)B?", self.memory)
        assert match is not None
        return int(float(match[1]) * (1024 if match[3] else 1000) ** (" KMGT".index(match[2])))

    def settings(self, processes: int) -> dict[str, Any]:
        """Return what ``dask_jobqueue.SLURMCluster`` is told: jobs of so many workers each."""
        return {
            "queue": self.partition,
            "account": self.others.get("account"),
            "cores": self.cores,
            "processes": processes,
            "memory": self.memory,
            "walltime": self.time,
            "job_extra_directives": [f"--{k}={v}" for k, v in self.others.items() if k != "account"],
            # One task at a time: it has the worker's threads for itself, in a process of its own.
            "worker_extra_args": ["--nthreads", "1", "--memory-limit", "0"],
        }


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an evaluation runs.

    Args:
        workers: processes of this machine, or of every SLURM job; 0 is this process itself, without Dask.
        scheduler: address of a Dask scheduler that is there, or ``slurm``, jobs for one; or neither.
    """

    workers: int
    scheduler: str | None = None
    slurm: Slurm | None = None


def check_place(place: Place) -> None:
    """Check that what the place needs is on this machine.

    Raises:
        InputError: Dask is not installed, or SLURM is not there.
    """
    require("distributed", "batch")
    if place.slurm is not None:
        require("dask_jobqueue", "cluster")
        if shutil.which("sbatch") is None:  # Dask calls it later, from a task whose failure nobody sees
            raise InputError(
                "--slurm: the command sbatch is not on PATH; run this where SLURM takes jobs, or drop --slurm"
            )


@contextlib.contextmanager
def connect(place: Place) -> Iterator[Any]:
    """Enter a Dask client of the place; it and what was started for it is closed at the end.

    Raises:
        InputError: no scheduler answers, or as `check_place`.
    """
    check_place(place)
    distributed = require("distributed", "batch")
    with contextlib.ExitStack() as stack:
        if place.scheduler is not None:
            try:
                client = stack.enter_context(distributed.Client(place.scheduler, timeout=_CONNECT_SECONDS))
                client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
            except (OSError, ValueError, TimeoutError) as error:
                raise InputError(
                    f"--scheduler {place.scheduler}: no Dask scheduler with a worker answers ({error}); "
                    "start dask scheduler and dask worker, or check the address, as tcp://host:8786"
                ) from error
        else:
            cluster = _local(place.workers) if place.slurm is None else _slurm(place.slurm, place.workers)
            client = stack.enter_context(distributed.Client(stack.enter_context(cluster)))
        yield client


def _local(workers: int) -> Any:
    distributed = require("distributed", "batch")
    with require("dask", "batch").config.set(_QUIET):
        return distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, memory_limit=0, dashboard_address="127.0.0.1:0"
        )


def _slurm(slurm: Slurm, processes: int) -> Any:
    cluster = require("dask_jobqueue", "cluster").SLURMCluster(**slurm.settings(processes))
    cluster.scale(jobs=slurm.jobs)
    return cluster


def require(module: str, extra: str) -> Any:
    """Import an optional package.

    Raises:
        InputError: it is not installed; says how to get it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"the package {module!r} is not installed; run pip install '.[{extra}]' in a clone of ct_dip"
            + (", or give --workers 0 to use this process alone" if extra == "batch" else "")
        ) from error
