"""What of an exporter's page is not read: metrics without a row, and series that no row matches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from collectors.coverage import Coverage, CoverageCount, fold_names
from fabmon.feeds.scrape.exporter_tables import ExporterTables
from fabmon.feeds.scrape.text_format import SeriesName

OTHER = "other metrics"
"""The driver of the metrics that no table covers: those of CPUs, disks, the exporter itself."""

_WORDS_OF_A_FAMILY = 2


def page_coverage(
    series: Sequence[SeriesName], understood: Collection[int], tables: ExporterTables
) -> tuple[Coverage, ...]:
    """The coverage of a page by driver, where a driver's metrics are those of ethtool, else by
    exporter; none for a page of which everything is read.

    `understood` are the positions of the series that are used, or left out on purpose. A metric of
    which only some series are understood is named with their number.
    """
    drivers = _DriverLabels(series, tables)
    all_series: dict[str, Counter[str]] = {}
    unread: dict[str, Counter[str]] = {}
    devices: dict[str, set[str]] = {}
    for position, each in enumerate(series):
        driver = drivers.of(each) or exporter_of(each.name, tables)
        all_series.setdefault(driver, Counter())[each.name] += 1
        devices.setdefault(driver, set()).add(each.labels.get("device", ""))
        if position not in understood:
            unread.setdefault(driver, Counter())[each.name] += 1
    found = []
    for driver, counts in sorted(unread.items()):
        seen = all_series[driver]
        names = [
            name if count == seen[name] else f"{name} ({count} of {seen[name]} series)"
            for name, count in counts.items()
        ]
        folded = _families(names) if driver == OTHER else fold_names(names)
        ports = len(devices[driver])
        found.append(Coverage(driver, ports, len(seen), len(seen) - len(counts), folded))
    return tuple(found)


def names_coverage(
    names: Iterable[str], known: Collection[str], tables: ExporterTables
) -> dict[str, Coverage]:
    """The coverage of the names of metrics on a server, by exporter; without OTHER."""
    count = CoverageCount()
    by_exporter: dict[str, list[str]] = {}
    for name in names:
        by_exporter.setdefault(exporter_of(name, tables), []).append(name)
    for exporter, own in by_exporter.items():
        count.add(exporter, own, known)
    return {each.driver: each for each in count.result() if each.unmapped and each.driver != OTHER}


class _DriverLabels:
    """The driver of the interface of a series, where the page says it."""

    def __init__(self, series: Sequence[SeriesName], tables: ExporterTables) -> None:
        self._labels: dict[str, str] = {}
        self._drivers: dict[tuple[str, str], str] = {}
        for prefixed in tables.groups:
            group = prefixed.group
            for lookup in group.lookups:
                if "driver" in lookup.labels:
                    label = group.labels[lookup.by]
                    self._labels[prefixed.prefix + group.prefix] = label
                    self._learn(series, prefixed.prefix + lookup.metric, label, lookup.labels)

    def _learn(
        self, series: Sequence[SeriesName], metric: str, label: str, labels: dict[str, str]
    ) -> None:
        for each in series:
            if each.name == metric and (driver := each.labels.get(labels["driver"])):
                self._drivers[label, each.labels.get(label, "")] = driver

    def of(self, each: SeriesName) -> str:
        """The driver; empty where the metric is not a driver's, or the driver is not known."""
        for prefix, label in self._labels.items():
            if each.name.startswith(prefix):
                return self._drivers.get((label, each.labels.get(label, "")), "")
        return ""


def exporter_of(name: str, tables: ExporterTables) -> str:
    """The exporter that a metric belongs to by its name, or OTHER."""
    if name in tables.covered:
        return tables.covered[name]
    stems = [stem for stem in tables.stems if name.startswith(stem)]
    return tables.stems[max(stems, key=len)] if stems else OTHER


def _families(names: Iterable[str]) -> tuple[str, ...]:
    """Names by their first words: `node_cpu_*`; a name without others of its family as it is."""
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault("_".join(name.split("_")[:_WORDS_OF_A_FAMILY]), []).append(name)
    return fold_names(
        members[0] if len(members) == 1 else f"{family}_*" for family, members in families.items()
    )
