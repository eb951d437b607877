"""Marginal likelihood of the sinogram, and the hyperparameters that maximise it."""
