"""The search for hyperparameters is done once per question, and kept in the run folder."""

import numpy as np
import pytest

from ct_dip.evidence import stage
from ct_dip.operators import ray_transform
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.fit import fit_posterior
from ct_dip.priors import complement
from tests import tiny


@pytest.fixture
def searches(monkeypatch):
    """How often the search was made."""
    calls = []
    real = stage.fit_evidence

    def counted(*arguments, **options):
        calls.append(options)
        return real(*arguments, **options)

    monkeypatch.setattr(stage, "fit_evidence", counted)
    return calls


def posterior(folder, *, seed=0, transform=None, **settings):
    config = InferenceConfig(**{"starts": 2, **settings})
    return fit_posterior(
        tiny.dip_fit(), tiny.scan(), config, run_folder=folder, seed=seed, transform=transform
    )


def test_the_same_question_is_not_searched_twice(tmp_path, searches):
    first, second = posterior(tmp_path), posterior(tmp_path)
    assert len(searches) == 1
    for name, value in vars(first.evidence).items():
        other = getattr(second.evidence, name)
        assert type(other) is type(value), name
        np.testing.assert_array_equal(np.asarray(other), np.asarray(value), err_msg=name)
    np.testing.assert_array_equal(first.std, second.std)
    assert first.hyperparameters == second.hyperparameters


def test_what_comes_after_the_search_does_not_repeat_it(tmp_path, searches):
    first = posterior(tmp_path)
    for settings in ({"temper": 0.9}, {"samples": 7}, {"image": "dip"}, {"relevance": False}):
        other = posterior(tmp_path, **settings)
        np.testing.assert_array_equal(other.evidence.theta, first.evidence.theta)
    assert len(searches) == 1


def test_another_complement_of_the_same_name_is_searched_anew(tmp_path, searches, monkeypatch):
    """As a later version of the program may have it."""
    posterior(tmp_path)
    monkeypatch.setattr(complement, "_EDGES", 3.0)
    found = posterior(tmp_path)
    assert len(searches) == 2
    np.testing.assert_array_equal(found.std, posterior(None).std)


@pytest.mark.parametrize(
    "change",
    [
        *({"noise": "fixed"}, {"complement": "white"}, {"prior_mean": "zero"}, {"starts": 1}, {"seed": 5}),
        *({"objective": "optimum"}, {"prior": "g"}),
    ],
    ids=str,
)
def test_another_question_is_searched_anew(tmp_path, searches, change):
    posterior(tmp_path)
    found = posterior(tmp_path, **change)
    assert len(searches) == 2
    np.testing.assert_array_equal(found.std, posterior(None, **change).std)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"prior": "g"},  # whose features depend on the rays, too
        {"regime": "compressed", "prior_mean": "zero"},  # without a residual that would show the rays
    ],
    ids=str,
)
def test_another_ray_transform_is_another_question(tmp_path, settings):
    other = ray_transform(tiny.scan().geometry, kernel="strip")
    first = posterior(tmp_path, **settings)
    second, fresh = (posterior(folder, transform=other, **settings) for folder in (tmp_path, None))
    assert not np.array_equal(first.std, fresh.std)
    np.testing.assert_array_equal(second.std, fresh.std)
    np.testing.assert_array_equal(second.evidence.theta, fresh.evidence.theta)


def test_a_start_that_failed_survives_the_file(tmp_path, monkeypatch):
    found = posterior(None).evidence
    failed = type(found)(**vars(found) | {"found": (found.objective, -np.inf), "at_bound": found.names[:1]})
    monkeypatch.setattr(stage, "fit_evidence", lambda *_, **__: failed)
    for _ in range(2):
        kept = posterior(tmp_path).evidence
        assert kept.found == (found.objective, -np.inf)
        assert kept.at_bound == found.names[:1]


def test_a_damaged_file_is_made_again(tmp_path, searches):
    first = posterior(tmp_path)
    (tmp_path / stage.EVIDENCE).write_bytes(b"PK damaged")
    np.testing.assert_array_equal(posterior(tmp_path).std, first.std)
    assert len(searches) == 2
