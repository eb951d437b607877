"""Head CT at three doses: see README.md."""
