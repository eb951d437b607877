"""Convolutions of some rows after another are those of all rows at once."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.nn.grad import conv2d_weight

from ct_dip.tangent import convolutions as module
from ct_dip.tangent.convolutions import convolve, correlate


@pytest.mark.parametrize("step", [1, 10**4, 10**9], ids=["a row", "some rows", "all rows"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("taps", [1, 3])
@pytest.mark.parametrize("places", [(9, 12), (8, 7), (1, 5)])
def test_rows_make_the_whole(step, stride, taps, places, monkeypatch):
    monkeypatch.setattr(module, "_STRIP_BYTES", step)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 4, *places, generator=generator).double()
    filters = torch.randn(5, 4, taps, taps, generator=generator).double()
    expected = F.conv2d(x, filters, None, stride, taps // 2)
    torch.testing.assert_close(convolve(x, filters, stride), expected)
    z = torch.randn(expected.shape, generator=generator).double()
    weights = correlate(x, z, filters.shape, stride)
    torch.testing.assert_close(weights, conv2d_weight(x, filters.shape, z, stride, taps // 2))
    size = float(weights.norm() * filters.norm())
    assert float((weights * filters).sum()) == pytest.approx(float((z * expected).sum()), abs=1e-12 * size)


def test_in_float32_nothing_is_cut(monkeypatch):
    monkeypatch.setattr(module, "_strips", lambda *_: pytest.fail("cut"))
    x, filters = torch.randn(1, 4, 9, 12), torch.randn(5, 4, 3, 3)
    z = convolve(x, filters, 1)
    torch.testing.assert_close(z, F.conv2d(x.double(), filters.double(), padding=1).float())
    assert correlate(x, z, filters.shape, 1).shape == filters.shape


def test_no_more_than_a_few_rows_are_unfolded(monkeypatch):
    seen = []
    convolution = F.conv2d
    monkeypatch.setattr(
        module.F, "conv2d", lambda x, *others: seen.append(x.shape) or convolution(x, *others)
    )
    monkeypatch.setattr(module, "_STRIP_BYTES", 3 * 12 * 4 * 9 * 8)  # three rows
    convolve(torch.zeros(1, 4, 9, 12, dtype=torch.float64), torch.zeros(5, 4, 3, 3, dtype=torch.float64), 1)
    assert [shape[-2] for shape in seen] == [5, 5, 5]
