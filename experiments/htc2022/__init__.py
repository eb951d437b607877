"""The Helsinki Tomography Challenge 2022: see README.md."""
