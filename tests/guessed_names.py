"""A program that a newcomer would guess. `test_public_names.py` runs it, and mypy checks it."""

from typing import assert_type

import ct_dip as ct
from ct_dip.arrays import Floats

geometry = ct.scanner(ct.Volume((16, 16)), 12)
scan = ct.simulate("ellipses", geometry, noise=ct.NoiseLevel(relative=0.05))
print(ct.plan(scan, method="tv"))
result = ct.reconstruct(scan, method="tv")
assert_type(result.mean, Floats)
assert_type(ct.fbp(scan), Floats)
assert_type(ct.psnr(result.mean, ct.phantom("ellipses", (16, 16))), float)
ct.export(result, "image.tif")
ct.report(result, "page.html")
ct.report(ct.compare(scan, ["fbp", "tv"]), "comparison.html")
assert list(ct.figures(result, "figures")) == ["image"]
assert not hasattr(ct, "nonsense")
if not ct:
    ct.nonsense  # type: ignore[attr-defined]  # noqa: B018
try:
    ct.query(result, (-5, -5, 5, 5))
except ct.CtDipError as error:
    print(error)
