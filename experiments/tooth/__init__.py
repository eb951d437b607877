"""A measured tooth from few views: see README.md."""
