"""Linear algebra with a symmetric positive definite operator that is only known by its products."""
