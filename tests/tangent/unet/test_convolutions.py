"""Convolutions of some rows after another are those of all rows at once, and their transposes fit."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.nn.grad import conv2d_input, conv2d_weight

from ct_dip.tangent.unet import convolutions as module
from ct_dip.tangent.unet.convolutions import convolve, convolve_transposed, correlate


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("step", [0, 10**4, 10**9], ids=["a row", "some rows", "all rows"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("taps", [1, 3, 5])
@pytest.mark.parametrize("places", [(9, 12), (8, 7), (1, 5), (2, 1)])
def test_rows_make_the_whole(step, stride, taps, places, generator, monkeypatch):
    monkeypatch.setattr(module, "_STRIP_BYTES", step)
    x = torch.randn(2, 4, *places, generator=generator).double()
    filters = torch.randn(5, 4, taps, taps, generator=generator).double()
    expected = F.conv2d(x, filters, None, stride, taps // 2)
    torch.testing.assert_close(convolve(x, filters, stride), expected)
    z = torch.randn(expected.shape, generator=generator).double()
    weights = correlate(x[:1], z[:1], filters.shape, stride)
    torch.testing.assert_close(weights, conv2d_weight(x[:1], filters.shape, z[:1], stride, taps // 2))
    back = convolve_transposed(z, filters, stride, places)
    torch.testing.assert_close(back, conv2d_input(x.shape, filters, z, stride, taps // 2))


@pytest.mark.parametrize("step", [0, 10**9], ids=["a row", "all rows"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_adds_to_what_is_there(step, dtype, generator, monkeypatch):
    monkeypatch.setattr(module, "_STRIP_BYTES", step)
    x = torch.randn(1, 4, 9, 12, generator=generator).to(dtype)
    filters = torch.randn(5, 4, 3, 3, generator=generator).to(dtype)
    there = torch.randn(1, 5, 9, 12, generator=generator).to(dtype).to(memory_format=torch.channels_last)
    expected = there + F.conv2d(x, filters, padding=1)
    assert convolve(x, filters, 1, add_to=there) is there
    torch.testing.assert_close(there, expected)


@pytest.mark.parametrize("step", [0, 10**9], ids=["a row", "all rows"])
def test_a_map_of_float32_is_read_with_all_digits_of_the_rest(step, generator, monkeypatch):
    monkeypatch.setattr(module, "_STRIP_BYTES", step)
    x = torch.randn(1, 4, 9, 12, generator=generator)
    filters = torch.randn(5, 4, 3, 3, generator=generator).double()
    z = torch.randn(1, 5, 9, 12, generator=generator).double()
    tight = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(convolve(x, filters, 1), F.conv2d(x.double(), filters, padding=1), **tight)
    own = correlate(x, z, filters.shape, 1)
    torch.testing.assert_close(own, conv2d_weight(x.double(), filters.shape, z, 1, 1), **tight)


def test_in_float32_nothing_is_cut(monkeypatch):
    monkeypatch.setattr(module, "_STRIP_BYTES", 0)
    monkeypatch.setattr(module, "_strips", lambda *_: pytest.fail("cut"))
    x, filters = torch.randn(1, 4, 9, 12), torch.randn(5, 4, 3, 3)
    z = convolve(x, filters, 1)
    torch.testing.assert_close(z, F.conv2d(x.double(), filters.double(), padding=1).float())
    assert correlate(x, z, filters.shape, 1).shape == filters.shape
    assert convolve_transposed(z, filters, 1, (9, 12)).shape == x.shape


def test_no_more_than_a_few_rows_are_unfolded(monkeypatch):
    seen = []
    strips = module._strips

    def watched(*others):
        for where, unfolded in strips(*others):
            seen.append((where.start, len(unfolded)))
            yield where, unfolded

    monkeypatch.setattr(module, "_strips", watched)
    monkeypatch.setattr(module, "_STRIP_BYTES", 4 * 12 * 4 * 9 * 8)  # four rows
    convolve(torch.zeros(1, 4, 9, 12, dtype=torch.float64), torch.zeros(5, 4, 3, 3, dtype=torch.float64), 1)
    assert seen == [(0, 48), (48, 48), (96, 12)]
