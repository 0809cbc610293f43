"""A recording for answers of RAS: the one of the logs of a job."""

from __future__ import annotations

from tests.unit.job_log.conftest import recording

__all__ = ["recording"]
