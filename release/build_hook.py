"""Manual pages in the wheel: hatchling runs this for every build, also for `pip install .`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManualPages(BuildHookInterface[Any]):
    """Adds the pages as data files, which pip puts into `share/man/man1` and pipx links."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the pages with the sources that are built, and not with an installed fabmon."""
        if version == "editable":
            return
        self._pages = tempfile.TemporaryDirectory()
        argv = [sys.executable, "-B", "-m", "fabmon.cli.manual", self._pages.name]
        subprocess.run(argv, cwd=self.root, check=True)
        for page in sorted(Path(self._pages.name).iterdir()):
            build_data["shared_data"][str(page)] = f"share/man/man1/{page.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the pages, which are in the wheel now."""
        if version != "editable":
            self._pages.cleanup()
