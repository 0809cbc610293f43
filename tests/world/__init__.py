"""A simulator of GPU-cluster fabrics that judges the detectors: docs/score.md.

It shares no code with the demo's simulator (fabmon/feeds/demo) and nothing with the analysis.
"""
