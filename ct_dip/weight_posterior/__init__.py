"""Approximate posteriors of the network's weights: Laplace's, sampled by Langevin, and variational."""
