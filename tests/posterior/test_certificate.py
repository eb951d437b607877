"""A certificate says what was not reached, with numbers and a way out, and nothing else."""

import dataclasses

import pytest

from ct_dip.posterior.certificate import CompressionCertificate, IterativeCertificate

COMMON = {"evidence_error": 0.1, "residual": 1e-6, "passes": 10, "closed_form": False}
COMPRESSED = CompressionCertificate(
    **COMMON,
    samples=100,
    samples_asked=100,
    converged=True,
    rank=40,
    discarded_trace=1e-3,
    discarded_trace_error=1e-4,
    discarded_trace_allowed=2e-3,
    extensions=1,
    hyperparameters_change=None,
    evidence_change=0.5,
    mean_error=0.01,
    sample_error=0.02,
    accurate=True,
    noise_log_det_error=0.0,
    noise_solve_residual=1e-8,
    noise_solve_converged=True,
)


def test_what_converged_has_nothing_to_say():
    assert COMPRESSED.warnings() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"discarded_trace": 0.5}, "rank 40 leaves 0.5 of the noise's trace outside, above"),
        ({"accurate": False, "mean_error": 0.7}, "moves the image by 0.7 and its samples by 0.02"),
        ({"noise_solve_converged": False}, "a solve with the noise ended at a relative residual of 1e-08"),
        ({}, "a solve ended at a relative residual of 1e-06"),
    ],
)
def test_every_shortfall_is_named(changes, words):
    (warning,) = dataclasses.replace(COMPRESSED, converged=False, **changes).warnings()
    assert warning.startswith("the compressed inference did NOT reach what it was asked for: ")
    assert words in warning


@pytest.mark.parametrize("closed", [False, True])
def test_missing_samples_matter_where_error_bars_come_from_them(closed):
    (warning,) = dataclasses.replace(COMPRESSED, samples=50, closed_form=closed).warnings()
    assert "there was time for 50 of 100 samples" in warning
    assert ("error bars are known to 10%" in warning) is not closed


def test_a_certificate_is_plain_values_in_a_file():
    found = IterativeCertificate(
        **COMMON,
        samples=30,
        samples_asked=30,
        converged=True,
        gradient=[0.1],
        gradient_error=[0.2],
        tolerance=1e-3,
    ).to_dict()
    assert found["gradient"] == [0.1]
    assert found["converged"] is True
    assert set(found) > set(COMMON)
