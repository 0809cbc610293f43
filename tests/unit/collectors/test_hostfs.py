from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.hostfs import HostFS
from collectors.readers.counter_files import CounterFiles
from collectors.source import Faults


def test_read_all_does_not_take_a_short_read_for_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of /proc give whole lines, a page at most: with 40 interfaces, less than all."""
    text = b"".join(b"eth%d: %d\n" % (index, index) for index in range(1000))
    (tmp_path / "dev").write_bytes(text)
    real: Callable[[int, int, int], bytes] = os.pread

    def whole_lines(fd: int, size: int, offset: int) -> bytes:
        return real(fd, min(size, 4096), offset).rpartition(b"\n")[0] + b"\n" * (offset < len(text))

    monkeypatch.setattr(os, "pread", whole_lines)
    file = HostFS(str(tmp_path)).open("dev")
    assert file.read_all() == text
    assert file.read_all() == text
    file.close()


def test_the_kernels_list_of_interfaces_is_read_to_its_end() -> None:
    file = HostFS("/").open("proc/net/dev")
    names = [line.partition(b":")[0].strip().decode() for line in file.read_all().splitlines()[2:]]
    file.close()
    assert "lo" in names


def test_a_file_that_is_dropped_is_closed() -> None:
    file = HostFS("/").open("proc/net/dev")
    fd = file.fd
    os.fstat(fd)
    del file
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_an_open_file_shows_the_new_content(tmp_path: Path) -> None:
    path = tmp_path / "counter"
    path.write_text("1\n")
    file = HostFS(str(tmp_path)).open("counter")
    assert file.read() == b"1\n"
    path.write_text("22\n")
    assert file.read() == b"22\n"
    file.close()
    file.close()


def test_counter_files_keep_their_order_and_give_reasons(tmp_path: Path) -> None:
    for name, text in (("good", "7\n"), ("text", "N/A (no PMA)\n"), ("sum", "5\n")):
        (tmp_path / name).write_text(text)
    (tmp_path / "sick").mkdir()
    cells = CounterFiles(HostFS(str(tmp_path)))
    assert cells.add("good")
    assert not cells.add("not there")
    assert cells.add("text")
    assert cells.add("sick")
    assert cells.add("good", "sum")
    assert not cells.add("good", "not there")
    faults: Faults = {}
    assert cells.read(faults) == [7, None, None, 12]
    assert faults == {1: "unsupported", 2: "failed"}
    cells.close()
    assert cells.read({}) == []


def test_names_are_sorted_and_an_absent_directory_is_empty(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / "d" / name).mkdir(parents=True)
    fs = HostFS(str(tmp_path))
    assert fs.names("d") == ["a", "b"]
    assert fs.names("d", "a", "x") == []
