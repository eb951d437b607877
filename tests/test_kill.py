"""SIGKILL at random moments of a job: the result is absent or complete, a rerun identical."""

import os
import subprocess
import sys

import pytest

from ct_dip.data.scan_file import write_scan
from ct_dip.data.simulate import NoiseLevel, simulate
from ct_dip.geometry import Volume
from ct_dip.scanners import scanner

KILLS = 3

# Forked after the imports, so that a job is short and a kill hits the work rather than the start.
SCRIPT = """
import os, random, shutil, signal, sys, time
import numpy as np
import ct_dip.dip.fit, ct_dip.pipeline, ct_dip.pages.figures
from ct_dip.cli import main
from ct_dip.data.result_file import read_result

ct_dip.dip.fit._CHECKPOINT_SECONDS = 0.05
options = sys.argv[2:]

def start(out, run):
    child = os.fork()
    if child == 0:
        os._exit(main(["reconstruct", "scan.h5", "--out", out, "--run", run, *options]))
    return child

def same(one, other):
    return np.array_equal(one.mean, other.mean) and np.array_equal(one.std, other.std)

begin = time.monotonic()
assert os.waitpid(start("whole.h5", "whole"), 0)[1] == 0
seconds = time.monotonic() - begin
whole = read_result("whole.h5")
random.seed(0)
killed = finished = 0
while killed < int(sys.argv[1]) and killed + finished < 80:
    child = start("killed.h5", "killed")
    time.sleep(random.uniform(0, 0.8 * seconds))
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    killed += os.WIFSIGNALED(status)
    finished += not os.WIFSIGNALED(status)
    if os.path.exists("killed.h5"):  # complete, then: it can be read, and is right
        assert same(read_result("killed.h5"), whole)
        os.remove("killed.h5")
        for name in ("killed.png", "killed.yaml", "killed.html"):
            if os.path.exists(name):
                os.remove(name)
    if random.random() < 0.5:  # from the beginning again, now and then
        shutil.rmtree("killed", ignore_errors=True)
assert os.waitpid(start("killed.h5", "killed"), 0)[1] == 0
assert same(read_result("killed.h5"), whole)
print(killed, finished)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kill_at_random_moments(tmp_path):
    geometry = scanner(Volume(shape=(16, 16)), views=12)
    write_scan(simulate("ellipses", geometry, noise=NoiseLevel(relative=0.05), seed=1), tmp_path / "scan.h5")
    settings = ("dip.channels=[8,8]", "dip.strength=0.3", "dip.max_steps=100", "inference.starts=1")
    options = ["--method", "lin-dip", "--threads", "1"]
    for setting in settings:
        options += ["--set", setting]
    output = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(KILLS), *options],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ).stdout
    killed, _ = (int(part) for part in output.split()[-2:])
    assert killed == KILLS
