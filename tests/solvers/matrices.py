"""Matrices with a spectrum that is chosen, and operators that misbehave."""

import torch


def rotation(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64)).Q


def symmetric(spectrum, seed=0):
    """Random eigenvectors, these eigenvalues, float64."""
    spectrum = torch.as_tensor(spectrum, dtype=torch.float64)
    q = rotation(len(spectrum), seed)
    matrix = (q * spectrum) @ q.T
    return (matrix + matrix.T) / 2


def decaying(n, power=2.0):
    """1, 2^−p, 3^−p, …"""
    return torch.arange(1, n + 1, dtype=torch.float64) ** -power


def sides(n, count, seed=1, dtype=torch.float64):
    """Right-hand sides, (count, n)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, n, generator=generator, dtype=torch.float64).to(dtype)


class Counted:
    """``v → K v`` of a symmetric matrix that remembers how many vectors it was asked for, call by call."""

    def __init__(self, matrix):
        self.matrix = matrix
        self.calls = []

    def __call__(self, v):
        self.calls.append(len(v))
        return v @ self.matrix

    @property
    def products(self):
        return sum(self.calls)
