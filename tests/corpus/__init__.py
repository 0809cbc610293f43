"""Jobs of PyTorch over the lab's namespaces, broken on purpose: what they print is a fixture.

`make corpus` runs them and writes `tests/unit/job_log/corpus`; torch is needed for that alone.
"""
