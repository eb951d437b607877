"""Bayesian models of the pixels themselves, without a network: Markov random fields, smoothed TV, a GP.

One model or sampler per file; `ct_dip.image_space.problem` is the unit in which all of them work.
"""
