"""What NCCL Inspector measured, from its metrics on the server: the mean of each node's GPUs."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Collection
from itertools import islice

from fabmon.fabric.jobs.collectives import (
    BANDWIDTH,
    DROPPED,
    TIME,
    CollectiveReport,
    DroppedRecords,
    Sample,
    of_metrics,
)
from fabmon.feeds.inspector.means import CollectiveMeans
from fabmon.feeds.prometheus.client import PrometheusClient
from fabmon.feeds.prometheus.metric_names import EXPORTED_NODE_LABEL
from fabmon.feeds.prometheus.responses import PrometheusError, parse_labels
from fabmon.feeds.prometheus.series_selection import SeriesSelection

_LOG = logging.getLogger("fabmon.feeds")

_PERIOD_S = 30.0
"""Seconds between two queries: the Inspector writes its metrics no more often."""
_LABELS = (
    *("slurm_job_id", "node", EXPORTED_NODE_LABEL, "comm_name", "n_nodes", "nranks"),
    *("collective", "p2p_operation", "message_size"),
)
_MOST_SERIES = 50_000


class PrometheusCollectives:
    """Asks for the metrics of NCCL Inspector where the server has them."""

    def __init__(self, client: PrometheusClient, selection: SeriesSelection) -> None:
        self._client = client
        self._selection = selection
        self._means = CollectiveMeans()
        self._dropped = DroppedRecords()
        self._asked_at_s = -math.inf
        self._reason = ""

    async def report(self, present: Collection[str], at_s: float) -> CollectiveReport | None:
        """What there is at a time; `present` are the names of metrics. None before it is due, and
        where there are none. An error costs the other metrics nothing. The server's own words are
        logged alone: they may hold names."""
        names = [name for name in (*BANDWIDTH, *TIME, *DROPPED) if name in present]
        if not names or at_s < self._asked_at_s + _PERIOD_S:
            return None
        self._asked_at_s = at_s
        try:
            found = await asyncio.gather(*(self._samples(name, at_s) for name in names))
        except PrometheusError as error:
            if not self._reason:
                _LOG.warning("%s; metrics of NCCL Inspector are missing", error)
            self._reason = f"Prometheus: {error.cause}"
        else:
            self._reason = ""
            samples = [sample for each in found for sample in each]
            self._dropped.add(samples)
            self._means.add_records(of_metrics(samples, int(at_s * 1e9)))
        return CollectiveReport(
            read_ns=time.time_ns(),
            reason=self._reason,
            lost=self._dropped.count,
            collectives=self._means.collectives(),
        )

    async def _samples(self, name: str, at_s: float) -> list[Sample]:
        """The values of a metric, those of a node's GPUs and algorithms together."""
        together = "sum" if name in DROPPED else "avg"
        query = f"{together} by ({', '.join(_LABELS)}) ({self._selection.any_of(name)})"
        vector = await self._client.instant(query, at_s)
        samples: list[Sample] = []
        series = zip(vector.keys, vector.values.tolist(), strict=True)
        for key, value in islice(series, _MOST_SERIES):
            labels = parse_labels(key)
            # A label of the target has taken the place of the Inspector's own.
            own = labels.pop(EXPORTED_NODE_LABEL, "")
            samples.append((name, {**labels, "node": own} if own else labels, value))
        return samples
