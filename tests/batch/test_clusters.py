"""Where tasks run: SLURM's options and job script, and what is said when something is missing."""

import dask.utils
import pytest

from ct_dip.batch import clusters
from ct_dip.batch.clusters import Place, Slurm, connect, require
from ct_dip.errors import InputError


def test_the_job_script_asks_for_what_was_given():
    from dask_jobqueue.slurm import SLURMJob

    slurm = Slurm.parse("partition=gpu, jobs=3, cores=8, memory=16GB, time=04:00:00, account=ct, gres=gpu:1")
    settings = slurm.settings(processes=2)
    script = SLURMJob(scheduler="tcp://10.0.0.1:8786", name="ct", **settings).job_script()
    for line in ("-p gpu", "-A ct", "--cpus-per-task=8", "--mem=15G", "-t 04:00:00", "--gres=gpu:1"):
        assert f"#SBATCH {line}" in script
    # A task has all threads of its worker.
    assert "--nworkers 2" in script
    assert script.count("--nthreads 1") == 1
    assert slurm.jobs == 3


@pytest.mark.parametrize("memory", ["4GB", "4 GiB", "1.5G", "900M", "2TB"])
def test_the_memory_of_a_job_is_what_dask_asks_for(memory):
    slurm = Slurm.parse(f"partition=main,memory={memory}")
    assert slurm.memory_bytes == dask.utils.parse_bytes(memory)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jobs=3", "needs a partition"),
        ("partition=a,nodes=3", "'nodes=3' is not an option; write NAME=VALUE with a name of partition"),
        ("partition=a,cores=0", "cores='0' is not a cores"),
        ("partition=a,partition=b", "partition is given twice"),
        ("partition=a b; rm -rf", "partition='a b; rm -rf' is not"),
        ("partition=a,time=tomorrow", "time='tomorrow'"),
    ],
)
def test_bad_options_of_slurm_are_refused(text, expected):
    with pytest.raises(InputError, match=expected):
        Slurm.parse(text)


def test_a_missing_package_is_named_with_the_command(monkeypatch):
    monkeypatch.setattr(clusters.importlib, "import_module", _missing)
    with pytest.raises(InputError, match=r"pip install '.\[batch\]' in a clone of ct_dip, or give --workers"):
        require("distributed", "batch")
    with pytest.raises(InputError, match=r"'dask_jobqueue' is not installed; run pip install"):
        require("dask_jobqueue", "cluster")


def _missing(name):
    raise ModuleNotFoundError(name)


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(clusters, "_CONNECT_SECONDS", 0.3)
    place = Place(workers=-1, scheduler="tcp://127.0.0.1:1")
    with pytest.raises(InputError, match=r"--scheduler tcp://127.0.0.1:1: no Dask"), connect(place):
        pass


def test_a_machine_without_slurm_is_refused_at_once(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    place = Place(workers=1, slurm=Slurm.parse("partition=main"))
    with pytest.raises(InputError, match="--slurm: the command sbatch is not on PATH"), connect(place):
        pass
