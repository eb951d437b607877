"""Pictures and pages of results."""
