"""Every number that the default method reports has a meaning that people can read."""

import dataclasses

from ct_dip import NoiseLevel, Volume, reconstruct, scanner, simulate
from ct_dip.data.legend import meaning
from ct_dip.pages.report_page import flatten


def test_every_number_of_the_default_method_is_explained():
    scan = simulate("ellipses", scanner(Volume((14, 14)), 12), noise=NoiseLevel(relative=0.05))
    scan = dataclasses.replace(scan, offset_error=0.1)
    quick = {"max_steps": 3, "warmup_steps": 1, "cooldown_steps": 1, "channels": [4, 4], "norm_groups": 2}
    result = reconstruct(scan, dip=quick, inference={"samples": 20, "calibrate": "none"})
    assert result.method == "lin-dip"
    assert result.diagnostics["offset_error"] == 0.1
    names = {name for name, _ in flatten(result.diagnostics)}
    assert {"evidence", "hyperparameters.log_noise", "seeds.run"} <= names
    assert {name for name in names if not meaning(name)} == set()


def test_a_block_of_weights_is_named():
    known = "log prior variance of the weights of the network's block up1"
    assert meaning("hyperparameters.log_variance.up1") == known
    assert meaning("nonsense") == meaning("nonsense.more") == ""
