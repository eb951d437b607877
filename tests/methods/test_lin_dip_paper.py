"""The published recipe is lin-dip with other defaults, and nothing else."""

import numpy as np
import pytest

import ct_dip
from ct_dip.methods import load_config
from tests.tiny import scan

DIP = {"channels": (3, 2), "max_steps": 30, "cooldown_steps": 10, "strength": 0.1}
RECIPE = {
    "prior": "block",
    "objective": "optimum",
    "hyperprior": "tv-predcp",
    "predcp_strength": "paper",
    "complement": "floor",
    "image": "dip",
    "calibrate": "none",
    "relevance": False,
    "starts": 1,
}


def test_it_is_lin_dip_with_that_recipe():
    common = {"samples": 5, "regime": "exact"}
    paper = ct_dip.reconstruct(scan(), method="lin-dip-paper", dip=DIP, **common)
    spelled = ct_dip.reconstruct(scan(), method="lin-dip", dip=DIP, inference=RECIPE | common)
    for name in ("mean", "std", "samples"):
        np.testing.assert_array_equal(getattr(paper, name), getattr(spelled, name))
    np.testing.assert_array_equal(paper.mean, paper.images["dip"])
    assert paper.heldout is None
    floor = paper.posterior.problem.complement
    assert not floor.in_model
    least = floor.variance.sqrt().numpy().reshape(paper.std.shape) * paper.posterior.scale
    noise = paper.diagnostics["sigma_y"] / paper.diagnostics["sigma_y_stated"]
    assert (paper.std >= 0.999 * noise * least).all()
    again = ct_dip.reconstruct(scan(), **paper.settings)
    np.testing.assert_array_equal(again.std, paper.std)


def test_a_setting_leaves_the_others_as_published():
    inference = load_config(method="lin-dip-paper", settings=["inference.samples=7"]).inference
    assert inference.samples == 7
    assert {name: getattr(inference, name) for name in RECIPE} == RECIPE


@pytest.mark.parametrize(("prior", "hyperprior"), [("block", "none"), ("block", "weak"), ("g", "none")])
def test_another_hyperprior_needs_no_word_on_predcp(prior, hyperprior):
    config = load_config(
        method="lin-dip-paper", settings=[f"inference.prior={prior}", f"inference.hyperprior={hyperprior}"]
    )
    assert config.inference.predcp_strength == "fit"
    again = load_config(method="lin-dip-paper", inference=config.inference.model_dump())
    assert again.inference == config.inference
