"""Tests of jobs: what squeue prints, where they run, which nodes they select."""
