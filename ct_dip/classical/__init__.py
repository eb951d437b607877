"""Classical reconstructions, one algorithm per file: the baselines of everything else."""
