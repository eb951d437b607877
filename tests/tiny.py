"""A problem so small that every matrix can be written down: 30 pixels, 28 rays, a few hundred weights."""

import numpy as np
import torch

from ct_dip.data.noise import PhotonNoise, WhiteNoise
from ct_dip.data.scan import Scan
from ct_dip.dip.ensemble import DipFit
from ct_dip.dip.unet import UNet, UNetShape
from ct_dip.geometry import ParallelBeam, Volume
from ct_dip.operators import ray_transform
from ct_dip.posterior.exact_model import linear_model
from ct_dip.posterior.problem import linear_problem
from ct_dip.scanners import view_angles
from ct_dip.tangent.linearise import linearise

IMAGE = (6, 5)
PLAIN = UNetShape(channels=(3, 2), skip_channels=(1,))
NORMALISED = UNetShape(channels=(4, 4), skip_channels=(1,), norm_groups=2)
SCALE = 0.5


def network(shape=PLAIN, seed=0):
    net = UNet(shape)
    net.initialise(torch.Generator().manual_seed(seed), 0.4)
    return net


def network_input(seed=1):
    return torch.rand(1, 1, *IMAGE, generator=torch.Generator().manual_seed(seed))


def scan(*, photons=False, seed=2, views=4):
    geometry = ParallelBeam(volume=Volume(shape=IMAGE), angles=view_angles(views), detectors=7)
    generator = np.random.default_rng(seed)
    image = generator.random(IMAGE).astype(np.float32) * SCALE
    clean = ray_transform(geometry)(torch.as_tensor(image)).numpy()
    noise = PhotonNoise(photons=300.0) if photons else WhiteNoise(std=0.1)
    sinogram = clean + 0.1 * generator.standard_normal(clean.shape)
    return Scan(sinogram=sinogram, geometry=geometry, noise=noise, ground_truth=image)


def dip_fit(shape=PLAIN, seed=0):
    net, z = network(shape, seed), network_input()
    with torch.no_grad():
        image = SCALE * net(z)[0, 0].numpy()
    return DipFit(
        image=image,
        template=net,
        weights=net.state_dict(),
        network_input=z,
        scale=SCALE,
        strength=0.1,
        tv_weight=1.5,
        steps=0,
        misfit=1.0,
        tv_misfit=1.0,
        loss=1.0,
        stopped_by="nobody",
        traces={},
    )


def problem_and_model(config, *, shape=PLAIN, photons=False, seed=0):
    """(`Problem` in float64, `LinearModel`)."""
    fit, data = dip_fit(shape, seed), scan(photons=photons)
    jacobian = linearise(fit.network().double(), fit.network_input.double())
    problem = linear_problem(fit, data, jacobian, config, ray_transform(data.geometry))
    return problem, linear_model(problem)


def model(config, **options):
    """(`LinearModel`, Jacobian in float64, scan)."""
    problem, found = problem_and_model(config, **options)
    return found, problem.jacobian, scan(photons=options.get("photons", False))
