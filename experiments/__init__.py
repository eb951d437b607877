"""Studies on real scans and published tables; slow ones are not part of the tests."""
