"""Measurements: ratios against hand-written code, in one run."""
