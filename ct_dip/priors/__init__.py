"""Priors over the weights of the linearised network, and over their hyperparameters."""
