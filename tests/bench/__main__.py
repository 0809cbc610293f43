"""`make bench`: every measurement behind the README's table, as JSON lines."""

from __future__ import annotations

from tests.bench import console, demo, heatmap, probe, ssh


def main() -> None:
    """Run them all, one after the other: they would disturb each other."""
    console.main()
    demo.main()
    ssh.main()
    probe.main()
    heatmap.main()


if __name__ == "__main__":
    main()
