"""What the data, the noise and the arithmetic say, in words."""

from dataclasses import replace

import numpy as np
import pytest

from ct_dip.data.prediction import Prediction
from ct_dip.data.run_doubts import run_doubts
from ct_dip.evaluation.structure import Structure
from ct_dip.pages import findings as module
from ct_dip.pages.finding import percent
from ct_dip.pages.findings import data_findings
from tests.pages.test_report_page import predictive, synthetic_result

SILENT = np.zeros((20, 25))  # 500 measurements whose residuals have no structure that could be judged


def findings(diagnostics, residuals=None):
    sinogram = None if residuals is None else predictive(residuals)
    return data_findings(Prediction(mean=np.zeros((4, 5)), sinogram=sinogram, diagnostics=diagnostics))


@pytest.mark.parametrize(
    ("leftover", "level"),
    [(1.0, "good"), (0.61, "good"), (0.59, "caution"), (1.29, "good"), (1.31, "caution"), (2.01, "poor")],
)
def test_sinogram_verdict(leftover, level):
    (found,) = findings({"sinogram_chi2": leftover}, SILENT)
    assert found.level == level
    # a fit of 100 directions of 500 measurements takes a fifth of the noise away
    (found,) = findings({"sinogram_chi2": 0.8 * leftover, "effective_dimension": 100.0}, SILENT)
    assert found.level == level


@pytest.mark.parametrize(
    ("correlation", "drift", "level", "word"),
    [
        (0.0, 0.0, "good", "Neither neighbouring"),
        (-0.3, 0.0, "good", "Neither neighbouring"),  # a fit leaves neighbours that alternate
        (0.19, 0.24, "good", "Neither neighbouring"),  # beyond chance, but small
        (0.41, 0.0, "caution", "correlate at 0.41, where noise alone gives 0 ± 0.02"),
        (0.7, 0.0, "poor", "correlate at 0.70"),
        (0.0, 0.5, "caution", "stray by 0.50 of the noise"),
        (0.0, 1.2, "poor", "stray by 1.20 of the noise"),
    ],
)
def test_structure_counts_as_well_as_size(monkeypatch, correlation, drift, level, word):
    structure = Structure(correlation, 0.02, drift, 0.1)
    monkeypatch.setattr(module, "residual_structure", lambda _: structure)
    (found,) = findings({"sinogram_chi2": 1.0}, SILENT)
    assert found.level == level
    assert word in found.text
    assert (found.title == "The image explains the measurements") == (level == "good")
    (found,) = findings({"sinogram_chi2": 3.0}, SILENT)
    assert found.level == "poor"


@pytest.mark.parametrize(
    ("stripe", "level"), [(0.2, "good"), (0.39, "good"), (1.3, "caution"), (3.1, "poor")]
)
def test_a_detector_that_is_off_in_every_view_is_said(monkeypatch, stripe, level):
    monkeypatch.setattr(module, "residual_structure", lambda _: Structure(0, 0.02, 0, 0.1, stripe, 0.4))
    (found,) = findings({"sinogram_chi2": 1.0}, SILENT)
    assert found.level == level
    assert ("draws a ring" in found.text) == (level != "good")
    assert (f"is off by {stripe} noise standard deviations" in found.text) == (level != "good")
    assert ("rim of a round object on too coarse a grid" in found.text) == (level != "good")
    assert ("Neither neighbouring" in found.text) == (level == "good")


def test_structure_within_chance_does_not_count(monkeypatch):
    """A tiny scan: 3 standard errors are more than what would matter."""
    monkeypatch.setattr(module, "residual_structure", lambda _: Structure(0.29, 0.1, 0.34, 0.2))
    (found,) = findings({"sinogram_chi2": 1.0}, np.zeros((5, 10)))
    assert found.level == "good"


@pytest.mark.parametrize(
    ("stopped_by", "misfit", "said"),
    [("budget", 5.93, True), ("budget", 1.1, False), ("discrepancy", 5.93, False)],
)
def test_a_network_that_ran_out_of_steps_is_said(stopped_by, misfit, said):
    found = findings({"stopped_by": stopped_by, "misfit": misfit, "steps": 500})
    assert [finding.level for finding in found] == ["caution"] * said
    for finding in found:
        assert "was stopped by its budget of 500 steps at a misfit of 5.9" in finding.text
        assert finding.advice.index("balanced") < finding.advice.index("thorough")


@pytest.mark.parametrize(
    ("ratio", "level"),
    [(1.0, "good"), (0.81, "good"), (0.79, "caution"), (1.24, "good"), (1.26, "caution"), (2.01, "poor")],
)
def test_noise_verdict(ratio, level):
    (found,) = findings({"sigma_y": ratio * 0.2, "sigma_y_stated": 0.2})
    assert found.level == level
    assert "states" in found.text
    diagnostics = {"sigma_y": ratio * 0.2, "sigma_y_stated": 0.2, "noise_estimated": True}
    assert "estimated from the data" in findings(diagnostics)[0].text


def test_a_doubt_that_a_result_keeps_as_a_warning_is_shown_once():
    metrics = {"tv_strength_at_bound": "weakest", "evidence_converged": False}
    metrics |= {"certificate": {"converged": False}}
    doubts = [doubt.warning for doubt in run_doubts(metrics)]
    result = replace(synthetic_result(), diagnostics=metrics, warnings=("odd", *doubts))
    assert [finding.title for finding in data_findings(result)] == [
        "The data look implausible",
        "Total variation is at the end of its range",
        "The error bars are not final",
        "The computation did not reach its accuracy",
    ]


def test_missing_or_odd_numbers_are_not_judged():
    assert findings({}) == []
    odd = {"sinogram_chi2": float("nan"), "sigma_y": "a lot", "sigma_y_stated": 0.0}
    assert findings(odd, SILENT) == []
    assert findings({"sigma_y": 1.0, "sigma_y_stated": 0.0}, SILENT) == []


def test_percent_is_never_all_unless_it_is():
    shares = (0, 1e-4, 0.957, 0.99999, 1)
    shown = [percent(share).replace("\N{NO-BREAK SPACE}", " ") for share in shares]
    assert shown == ["0 %", "under 0.1 %", "95.7 %", "over 99.9 %", "100 %"]


def test_every_finding_that_is_not_good_says_what_to_do():
    metrics = [{"sinogram_chi2": v} for v in (0.1, 1.6, 3.0)]
    metrics += [{"sigma_y": v, "sigma_y_stated": 1.0} for v in (0.1, 1.5, 3.0)]
    metrics += [{"widening": 9.0}, {"evidence_converged": False}, {"tv_strength_at_bound": "weakest"}]
    metrics += [{"misses_directions": True}]
    metrics += [{"converged": False, "duality_gap": 0.1}, {"certificate": {"converged": False}}]
    found = []
    for each in metrics:
        result = replace(synthetic_result(), diagnostics=each, warnings=("odd",))
        found += data_findings(result)
    doubts = [finding for finding in found if finding.level in ("caution", "poor")]
    assert len({finding.title for finding in doubts}) == 13
    assert all(finding.advice.endswith(".") for finding in doubts)
    assert not any(finding.advice for finding in found if finding.level == "good")
