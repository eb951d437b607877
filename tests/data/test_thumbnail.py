"""What notebooks and prompts show of scans and predictions."""

import base64
import io
import re
from dataclasses import replace

import numpy as np
from PIL import Image

from ct_dip import NoiseLevel, PhotonNoise, Volume, ray_transform, scanner, simulate
from ct_dip.data.thumbnail import thumbnails
from tests.predictions import prediction

SCAN = simulate("ellipses", scanner(Volume((16, 16)), 12), noise=NoiseLevel(std=0.01), source="a <scan>")


def pictures(html):
    found = re.findall(r"data:image/png;base64,([^\"]+)", html)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(each)))) for each in found]


def test_a_repr_is_one_informative_line():
    grid = "16 × 16 pixels of 1 mm"
    beam = repr(SCAN.geometry)
    assert beam == f"<ParallelBeam: 12 views from 0° to 165°, 23 detectors of 1 mm, {grid}>"
    transform = repr(ray_transform(SCAN.geometry))
    assert transform == "<SparseRayTransform(parallel, linear): (16, 16) → (12, 23)>"
    known = "white noise of 0.01, ground truth"
    assert repr(SCAN) == f"<Scan of a <scan>: parallel beam, 12 views × 23 detectors, {grid}, {known}>"
    image = repr(prediction("tv", compared=None))
    assert image == "<Prediction by tv: 24 × 24 pixels of 1 mm, no error bars, 2 min 1 s>"
    assert "100,000 photons per bin" in repr(replace(SCAN, noise=PhotonNoise(photons=1e5)))
    assert re.search(r"error bars, 40 samples, \d\d\.\d\d dB, ", repr(prediction("lin-dip", std=0.001)))


def test_a_notebook_shows_pictures_of_the_arrays():
    sinogram, truth = pictures(SCAN._repr_html_())
    assert sinogram.shape == (12, 23)
    assert truth.shape == (16, 16)
    assert np.argmax(sinogram) == np.argmax(SCAN.sinogram)
    assert (truth.min(), truth.max()) == (0, 255)
    assert "a &lt;scan&gt;" in SCAN._repr_html_()
    assert len(pictures(prediction("lin-dip", std=0.001)._repr_html_())) == 3
    assert len(pictures(prediction("tv", compared=None)._repr_html_())) == 1


def test_large_and_constant_arrays_have_small_pictures():
    (large,) = pictures(thumbnails("large", {"zeros": np.zeros((2000, 600)), "none": None}))
    assert max(large.shape) <= 512
    assert not large.any()
