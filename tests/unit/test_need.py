"""`fabmon need`: the examples of its page worked again, the table, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from fabmon.cli.main import cli
from fabmon.report.output import json_schema
from fabmon.report.requirement import RequirementRecord
from fabmon.session.errors import UsageError
from tests.goldens import check_golden
from tests.tui.recordings import FAST, Watching
from tests.unit.recording.builders import demo_recording

DOCS = Path(__file__).parents[2] / "docs"
GOLDENS = Path(__file__).parent / "goldens"
PAGE = (DOCS / "need.md").read_text(encoding="utf-8").partition("## Worked by hand")[2]
_EXAMPLE = re.compile(r"^### (.+?)\n+```\nfabmon (need .+?)\n```\n(.*?)(?=^### |\Z)", re.M | re.S)
_LINE = re.compile(r"^- `(\w+)`: `([\d. ex*/()+]+) = ([\d.e]+)`$", re.M)
EXAMPLES = _EXAMPLE.findall(PAGE)


def need(arguments: str) -> Result:
    return CliRunner().invoke(cli, shlex.split(arguments))


def requirement(arguments: str) -> dict[str, Any]:
    done = need(f"need {arguments} --format json")
    assert done.exit_code == 0, f"{done.output} {done.exception}"
    found: dict[str, Any] = json.loads(done.output)
    return found


def test_every_example_of_the_page_is_worked() -> None:
    assert len(EXAMPLES) == PAGE.count("### ")
    assert sum(len(_LINE.findall(text)) for _, _, text in EXAMPLES) == PAGE.count("\n- `")


@pytest.mark.parametrize(
    ("command", "text"), [each[1:] for each in EXAMPLES], ids=[each[0] for each in EXAMPLES]
)
def test_an_example_worked_by_hand(command: str, text: str) -> None:
    found = requirement(command.removeprefix("need "))
    for key, left, right in _LINE.findall(text):
        worked = eval(left.replace(" x ", " * "))
        assert worked == pytest.approx(float(right), rel=1e-4), key
        assert found[key] == pytest.approx(float(right), rel=1e-4), key


def test_the_object_follows_its_schema() -> None:
    check_golden(DOCS / "need.schema.json", json_schema(RequirementRecord).decode())
    for options in ("", "--compute 4s", "--zero 3 --pp 2"):
        found = requirement(f"--params 70e9 --dp 64 --tp 8 {options}")
        jsonschema.validate(found, json.loads(json_schema(RequirementRecord)))


def test_the_table() -> None:
    done = need("need --params 70e9 --dtype bf16 --dp 64 --tp 8 --compute 4s")
    check_golden(GOLDENS / "need.txt", done.output)


@pytest.mark.parametrize(
    ("compute", "verdict", "sentence"),
    [
        ("4s", "hidden", "Communication takes 861 ms and is hidden behind computing."),
        ("1s", "partly", "hidden only if it overlaps with nearly all of the computing"),
        ("0.5s", "exposed", "is not hidden: a step waits 361 ms or longer"),
    ],
)
def test_how_much_is_hidden(compute: str, verdict: str, sentence: str) -> None:
    job = f"--params 70e9 --dp 64 --tp 8 --compute {compute}"
    assert requirement(job)["verdict"] == verdict
    assert sentence in need(f"need {job}").output


def test_without_a_compute_time_it_says_how_long_computing_must_take() -> None:
    found = requirement("--params 70e9 --dp 64 --tp 8")
    assert found["verdict"] is found["needed_low_bps"] is found["compute_source"] is None
    assert "add --compute TIME" in need("need --params 70e9 --dp 64 --tp 8").output


def test_a_job_of_one_node_needs_no_network() -> None:
    assert "No gradient leaves a node" in need("need --params 70e9 --dp 8").output
    assert requirement("--params 70e9 --dp 8")["rail_bytes"] == 0


@pytest.mark.parametrize(
    ("job", "nodes"),
    [("--dp 2 --tp 3", 1), ("--dp 4 --tp 16", 8), ("--dp 64 --tp 3 --gpus-per-node 6", 32)],
)
def test_tensor_parallel_groups_fill_nodes(job: str, nodes: int) -> None:
    output = need(f"need --params 70e9 {job}").output
    assert f"in {nodes} node{'s' * (nodes > 1)}, all-reduce" in output


def test_stages_one_and_two_of_zero_send_what_an_all_reduce_sends() -> None:
    job = "--params 8e9 --dp 64"
    plain = requirement(job)["rail_bytes"]
    assert requirement(f"{job} --zero 1")["rail_bytes"] == plain
    assert requirement(f"{job} --zero 3") == requirement(f"{job} --fsdp")


def test_what_is_left_out_is_named() -> None:
    found = requirement("--params 70e9 --dp 8 --tp 16 --pp 4 --zero 3")["not_included"]
    assert [each.partition(":")[0] for each in found] == [
        "tensor parallelism",
        "activations between pipeline stages",
        "micro-batches",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "describe the model"),
        ("--dp 8", "--dp describes a model"),
        ("--params 70e9", "needs --dp"),
        ("--params 70e9 --dp 8 --zero 3 --sharp", "--sharp is for all-reduces"),
        ("--params 70e9 --dp 64 --tp 3 --gpus-per-node 8", "--tp 3: nodes of 8 GPUs do not hold"),
        ("--params 70e9 --dp 64 --tp 12", "--tp 12: nodes of 8 GPUs do not hold whole groups"),
        ("--params 70e9 --dp 8 --mfu 0.4", "--mfu needs --peak-tflops"),
        ("--params 70e9 --dp 8 --compute 4s --recording x.fabrec", "remove one"),
        ("--params 70e9 --dp 8 --recording x.fabrec", "no such file"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: str, message: str) -> None:
    done = need(f"need {options}")
    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)


def test_a_line_rate_is_written_as_in_the_hosts_file() -> None:
    found = requirement("--params 70e9 --dp 64 --line-rate 200G")
    assert (found["line_rate_bps"], found["delivered_bps"]) == (200e9, 160e9)
    refused = need("need --params 70e9 --dp 64 --line-rate fast")
    assert refused.exit_code == 2
    assert "is not a line rate" in refused.output


def test_steps_that_may_be_aliases_of_shorter_ones_measure_no_computing(tmp_path: Path) -> None:
    """A job with 0.5 s of computing would have some seconds, behind which all is hidden."""
    path = tmp_path / "fast.fabrec"
    Watching(FAST).record(path, 150)
    done = need(f"need --params 8e9 --dp 64 --recording {path}")
    assert isinstance(done.exception, UsageError)
    assert "may be shorter than two samples: record with a shorter" in str(done.exception)


def test_computing_is_measured_in_a_recording_of_the_job(tmp_path: Path) -> None:
    path = demo_recording(tmp_path / "run.fabrec", 90)
    found = requirement(f"--params 8e9 --dp 64 --recording {path}")
    assert found["compute_source"] == "measured"
    step_s = found["measured"]["step_s"]
    assert 0 < found["compute_low_s"] < found["compute_high_s"] == step_s
    assert found["needed_low_bps"] == pytest.approx(found["rail_bytes"] * 8 / step_s)
    said = " ".join(need(f"need --params 8e9 --dp 64 --recording {path}").output.split())
    assert "Measured: steps of" in said
    hosts = found["measured"]["hosts"]
    assert f"The model has 8 nodes, the job in the recording {hosts}: it is another" in said
    same = need(f"need --params 8e9 --dp {8 * hosts} --recording {path}").output
    assert "The model has" not in same
