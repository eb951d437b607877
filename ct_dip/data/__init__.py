"""Scans: what was measured, how, and how noisy; their files; and how to simulate them."""
