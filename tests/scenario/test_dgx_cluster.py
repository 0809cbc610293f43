"""Sixteen DGX-like hosts: HCAs, storage cards and Ethernet between each other, with a training job,
checkpoints on the storage cards, and SSH on the frontend."""

from __future__ import annotations

from pathlib import Path

from fabmon.analysis.audit.survey import Surveyor
from fabmon.analysis.finding import Change
from fabmon.report.doctor import doctor_table, examine
from fabmon.tui.heatmap_layout import Kind
from fabmon.tui.heatmap_levels import build_grid
from tests.builders import new_pipeline
from tests.dgx import RAILS, DgxFeed
from tests.goldens import check_golden

GOLDENS = Path(__file__).parent / "goldens"
MINUTES = 5


def test_a_training_job_with_checkpoints_has_no_finding() -> None:
    feed = DgxFeed()
    pipeline, surveyor = new_pipeline(feed.hosts), Surveyor(feed.hosts)
    opened = []
    for _ in range(MINUTES * 60):
        tick = feed.step()
        surveyor.accept(tick)
        scene = pipeline.accept(tick)
        opened += [finding.text for change, finding in scene.changes if change is Change.OPEN]
    assert opened == []

    snapshot = scene.snapshot
    for node in snapshot.fabric.nodes:
        if node.role == "host":
            labels = {port.label: port.name for port in node.ports}
            assert [labels[f"r{n}"] for n in range(8)] == [f"mlx5_{n}" for n in RAILS]
            assert [labels[f"s{n}"] for n in range(4)] == ["mlx5_1", "mlx5_2", "mlx5_7", "mlx5_8"]
            assert [labels[f"f{n}"] for n in range(2)] == ["eno3", "ens6f0"]
    storage = [port.row for port in snapshot.fabric.ports if port.label == "s0"]
    assert (snapshot.column("tx_bps")[storage] > 200e9).all()

    grid = build_grid(snapshot.fabric, 200, 60)
    host = next(y for y, parts in enumerate(grid.rows) if parts[0].kind is Kind.NODE)
    row = grid.cells[host]
    shown = [snapshot.fabric.ports[port].label for port in row[:16].tolist() if port >= 0]
    assert shown == [*(f"r{n}" for n in range(8)), *(f"s{n}" for n in range(4)), "f0", "f1"]

    check_golden(GOLDENS / "dgx_doctor.txt", doctor_table(examine(surveyor.survey(snapshot))))
