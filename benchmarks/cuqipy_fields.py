"""Our Markov random fields, Gaussian and Laplace, against CUQIpy's, which needs ``pip install '.[peers]'``.

The same rays, noise, hyperpriors and numbers of draws at ellipses of 40², 20 views, 5 % noise. What differs:
CUQIpy has zero beyond the border of the image, and the weights of its Laplace field end at differences of
0.003 of the image's largest value, ours at 0.0001 of it.
"""

import time
from collections.abc import Iterator

import numpy as np
import scipy.sparse
import torch

import ct_dip
from benchmarks.measure import Row, faster, plain
from benchmarks.object_list import Item, make_scan
from ct_dip.arrays import Floats
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.data.simulate import WATER
from ct_dip.evaluation.score import score
from ct_dip.image_space.chain_prediction import chain_prediction
from ct_dip.operators import ray_transform

ITEM = Item("ellipses", 40, 20, "5%", seed=4)
FIELDS = ("gmrf", "lmrf")
DRAWS, BURN_IN = 500, 100
FIGURES = ("psnr", "coverage_50_near", "coverage_95_near", "log_likelihood_1", "crps")


def run() -> Iterator[Row]:
    scan, truth = make_scan(ITEM)
    for field in FIELDS:
        start = time.process_time()
        ours = ct_dip.reconstruct(scan, method=field, draws=DRAWS, burn_in=BURN_IN, threads=1)
        between = time.process_time()
        theirs = chain_prediction(torch.as_tensor(sample_cuqipy(scan, field))[None], 1.0, samples=200)
        case = f"{field}, {ITEM.label}"
        yield faster("cuqipy-fields", case, "CUQIpy", time.process_time() - between, between - start)
        for name, found in {"ours": ours, "CUQIpy": theirs}.items():
            row = score(found, truth, scan.evaluated).row()
            for figure in FIGURES:
                yield plain("cuqipy-fields", f"{field}, {figure}, {name}", float(row[figure] or 0), "")
            size = found.diagnostics["effective_samples"]
            yield plain("cuqipy-fields", f"{field}, effective samples, {name}", size, "")
        yield from _differences(field, ours, theirs)


def _differences(field: str, ours: Prediction, theirs: Prediction) -> Iterator[Row]:
    assert ours.std is not None
    assert theirs.std is not None
    means = float(np.sqrt((((ours.mean - theirs.mean) / ours.std) ** 2).mean()))
    yield plain("cuqipy-fields", f"{field}, rms difference of means", means, "deviations")
    ratio = float(np.median(theirs.std / ours.std))
    yield plain("cuqipy-fields", f"{field}, median ratio of deviations, CUQIpy to ours", ratio, "")


def sample_cuqipy(scan: Scan, field: str, seed: int = 0) -> Floats:
    """Draws of CUQIpy's hybrid Gibbs sampler, (draws, rows, columns), 1/mm, float32."""
    from cuqi.distribution import GMRF, LMRF, Gamma, Gaussian, JointDistribution
    from cuqi.geometry import Image2D
    from cuqi.model import LinearModel
    from cuqi.sampler import UGLA, Conjugate, ConjugateApprox, HybridGibbs, LinearRTO

    np.random.seed(seed)  # noqa: NPY002, as CUQIpy draws from it
    # CUQIpy's hyperpriors and weights have a unit. Starting from an image of zeros it needs one in which the
    # image is of order one: in a unit of less than half that size it ends in a flat image, and all is noise.
    matrix = WATER * scipy.sparse.csr_matrix(ray_transform(scan.geometry).dense().numpy())
    shape = scan.geometry.domain_shape
    model = LinearModel(
        lambda x: matrix @ np.asarray(x).ravel(),
        lambda y: matrix.T @ np.asarray(y).ravel(),
        range_geometry=matrix.shape[0],
        domain_geometry=Image2D(shape),
    )
    # CUQIpy knows variables by the names that they have here, and by those of the lambdas' arguments.
    d = Gamma(1, 1e-4)
    noise = Gamma(1, 1e-4)
    grid = model.domain_geometry
    if field == "lmrf":
        x, image, precision = LMRF(0, lambda d: 1 / d, geometry=grid), UGLA(), ConjugateApprox()
    else:
        x, image, precision = (
            GMRF(np.zeros(grid.par_dim), lambda d: d, geometry=grid),
            LinearRTO(),
            Conjugate(),
        )
    y = Gaussian(model(x), lambda noise: 1 / noise)
    posterior = JointDistribution(d, noise, x, y)(y=scan.sinogram.ravel().astype(float))
    sampler = HybridGibbs(posterior, {"x": image, "d": precision, "noise": Conjugate()})
    sampler.warmup(BURN_IN)
    sampler.sample(DRAWS)
    drawn = sampler.get_samples()["x"].samples.T[-DRAWS:]
    return np.asarray(WATER * drawn.reshape(-1, *shape), dtype=np.float32)
