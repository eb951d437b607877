"""A measured walnut from few views: see README.md."""
