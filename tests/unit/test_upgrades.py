"""What released versions wrote is read by this one: docs/versions.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import fabmon
from fabmon.cli.main import cli
from fabmon.fabric.hosts.hosts_file import read

ROOT = Path(__file__).parents[2]
RELEASES = ROOT / "tests" / "fixtures" / "releases"
VERSIONS = re.findall(r"(?m)^## (\d+\.\d+\.\d+) - ", (ROOT / "CHANGELOG.md").read_text())
HOW = "tests/fixtures/releases/make.sh makes it (docs/versions.md)"


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_every_version_of_the_changelog_has_fixtures() -> None:
    assert fabmon.__version__ in VERSIONS
    assert sorted(VERSIONS) == sorted(path.name for path in RELEASES.iterdir() if path.is_dir()), (
        HOW
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_its_recording_is_sound_and_replays(version: str) -> None:
    recording = str(RELEASES / version / "demo.fabrec")
    about = printed("info", recording)
    assert f"fabmon {version} on login.example.org" in about
    assert "61 ticks" in about
    assert "intact" in printed("verify", recording)
    report = json.loads(printed("replay", recording, "--to", "+25s", "--format", "json"))
    assert report["tick"]["nodes_up"] == report["tick"]["nodes_total"] == 10
    assert [finding["cause"] for finding in report["findings"]] == ["ecmp_collision"]


@pytest.mark.parametrize("version", VERSIONS)
def test_its_settings_and_hosts_are_read(version: str) -> None:
    config = RELEASES / version / "fabmon.toml"
    settings = json.loads(printed("config", "--format", "json", "--config", str(config)))
    origins = [each["origin"] for each in settings["settings"]]
    assert sum("fabmon.toml:" in str(origin) for origin in origins) >= 60
    assert len(read(RELEASES / version / "hosts.txt")) > 100


@pytest.mark.parametrize("version", VERSIONS)
def test_its_json_lines_have_lost_no_key(version: str) -> None:
    old = json.loads((RELEASES / version / "jsonl.schema.json").read_text())
    new = json.loads((ROOT / "docs" / "jsonl.schema.json").read_text())
    assert set(required(old)) <= set(required(new)), f"if {version} is not released, {HOW}"


def required(schema: Any, where: str = "") -> list[str]:
    """Every key that the records of a schema always have, as a path."""
    found = [f"{where}/{key}" for key in schema.get("required", [])]
    for group in ("properties", "$defs"):
        for key, inner in schema.get(group, {}).items():
            found += required(inner, f"{where}/{key}")
    return found
