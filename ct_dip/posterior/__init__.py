"""What the data leave uncertain: mean, covariance, samples."""
