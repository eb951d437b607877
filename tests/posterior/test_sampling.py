"""Samples come in chunks: the same ones at once, in pieces, after a kill, and only some if time is short."""

import time

import pytest
import torch

from ct_dip.posterior.sampling import LEAST, SampledDeviations, draw_samples
from tests.posterior.dense import compressed, configured, exact_model, problem_of


@pytest.fixture(scope="module")
def posterior():
    problem = problem_of(configured("slope"))
    model = exact_model(problem)
    return compressed(problem, model, model.evidence.start)[0]


class Killed(BaseException):
    pass


def test_a_killed_run_keeps_its_chunks_and_goes_on_to_the_same_samples(posterior, tmp_path, monkeypatch):
    whole = draw_samples(posterior, 45, 7)
    assert whole.shape == (45, 30)
    plain, calls = type(posterior).deviations, []

    def counted(self, count, generator):
        if len(calls) == 3:
            raise Killed
        calls.append(count)
        return plain(self, count, generator)

    monkeypatch.setattr(type(posterior), "deviations", counted)
    with pytest.raises(Killed):
        draw_samples(posterior, 45, 7, folder=tmp_path, digest="d")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"samples-00{i}.npz" for i in range(3)]
    calls.clear()
    again = draw_samples(posterior, 45, 7, folder=tmp_path, digest="d")
    assert calls == [10, 5]  # the chunks that were missing
    assert torch.equal(again, whole)


@pytest.mark.parametrize("change", [{"seed": 8}, {"digest": "other"}])
def test_chunks_of_something_else_are_not_used(posterior, tmp_path, change):
    first = {"seed": 7, "digest": "d"}
    draw_samples(posterior, 20, folder=tmp_path, **first)
    found = draw_samples(posterior.tempered(0.5), 20, folder=tmp_path, **(first | change))
    expected = draw_samples(posterior.tempered(0.5), 20, (first | change)["seed"])
    assert torch.equal(found, expected)


def test_more_samples_begin_with_the_same_ones(posterior):
    few, many = draw_samples(posterior, 20, 7), draw_samples(posterior, 40, 7)
    assert torch.equal(many[:20], few)
    assert not torch.equal(draw_samples(posterior, 20, 8), few)
    assert len(torch.unique(many, dim=0)) == 40  # and no chunk is another one again


def test_a_deadline_in_the_past_gives_the_least_number(posterior):
    whole = draw_samples(posterior, 100, 7)
    found = draw_samples(posterior, 100, 7, deadline=time.monotonic() - 1)
    assert len(found) == LEAST < 100
    assert torch.equal(found, whole[:LEAST])
    assert len(draw_samples(posterior, 100, 7, deadline=time.monotonic() + 100)) == 100
    assert len(draw_samples(posterior, 5, 7, deadline=time.monotonic() - 1)) == 5


@pytest.mark.parametrize("floor", [0.0, 0.04])
def test_deviations_of_samples_state_their_error(posterior, floor):
    exact = (posterior.pixel_covariance(torch.arange(30)).diagonal() + floor).sqrt()
    found = SampledDeviations(posterior, draw_samples(posterior, 400, 7), 7, floor)
    z = (found.std - exact) / found.std_error
    assert 0.6 < float(z.square().mean().sqrt()) < 1.5
    assert found.samples == 400
    index = torch.tensor([2, 3, 11])
    matrix = found.covariance(index)
    torch.testing.assert_close(matrix.diagonal(), found.std[index].square())


def test_the_stated_error_is_the_spread_over_repetitions(posterior):
    parts = torch.split(posterior.deviations(2000, torch.Generator().manual_seed(7)), 50)
    found = [SampledDeviations(posterior, part, 7) for part in parts]
    spread = torch.stack([each.std for each in found]).std(dim=0)
    stated = torch.stack([each.std_error for each in found]).mean(dim=0)
    # 40 repetitions know the spread of a pixel to 11 %, and the mean over pixels better.
    assert float((spread / stated).mean()) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("floor", [0.0, 0.04])
def test_closed_form_deviations_are_exact(posterior, floor):
    matrix = posterior.pixel_covariance(torch.arange(30))
    matrix.diagonal().add_(floor)
    found = SampledDeviations(posterior, draw_samples(posterior, 20, 7), 7, floor, closed=True)
    torch.testing.assert_close(found.std, matrix.diagonal().sqrt())
    assert found.std_error is None
    assert found.samples == 0
    index = torch.tensor([2, 3, 11])
    torch.testing.assert_close(found.covariance(index), matrix[index[:, None], index])


def test_draws_are_those_that_are_there_if_they_will_do(posterior):
    drawn = draw_samples(posterior, 30, 7)
    found = SampledDeviations(posterior, drawn, 7)
    assert torch.equal(found.draw(12, 7), drawn[:12])
    assert torch.equal(found.draw(40, 7), draw_samples(posterior, 40, 7))
    assert torch.equal(found.draw(12, 9), draw_samples(posterior, 12, 9))
