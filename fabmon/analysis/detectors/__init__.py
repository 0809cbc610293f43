"""The detectors: one module for each cause of a finding."""
