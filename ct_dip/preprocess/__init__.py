"""From measured sinograms to ones that can be reconstructed: geometry and noise found in the data, faults repaired."""
