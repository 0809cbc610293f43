"""`make bench`: every measurement behind the README's table, as JSON lines."""

from __future__ import annotations

from tests.bench import analysis, console, engine, exporters, heatmap, probe, ssh, wire


def main() -> None:
    """Run them all, one after the other: they would disturb each other."""
    console.main()
    analysis.main()
    engine.main()
    ssh.main()
    probe.main()
    wire.main()
    heatmap.main()
    exporters.main()


if __name__ == "__main__":
    main()
