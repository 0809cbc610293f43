"""Command templates: split like a shell does, filled by argument, without any shell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabmon.fabric.hosts.exec_command import PRESETS, CommandError, fill, split


def filled(command: str, **more: object) -> list[str]:
    values: dict[str, object] = {
        "node": "gpu1",
        "python": "python3",
        "probe": "PROBE",
        "loader": "LOADER",
        **more,
    }
    return fill(split(command), **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "more", "expected"),
    [
        ("kubectl", {}, ["kubectl", "exec", "-i", "gpu1", "--", "sh", "-c", "PROBE"]),
        (
            "srun",
            {},
            ["srun", "--nodelist=gpu1", "--ntasks=1", "--overlap", "--quiet", "sh", "-c", "PROBE"],
        ),
        (
            "podman exec -i {node} {python}",
            {"python": "/opt/py"},
            ["podman", "exec", "-i", "gpu1", "/opt/py", "-c", "LOADER"],
        ),
        (
            "docker exec -i --format='{{.Name}}' 'a {node} b' {python}",
            {},
            ["docker", "exec", "-i", "--format={{.Name}}", "a gpu1 b", "python3", "-c", "LOADER"],
        ),
    ],
)
def test_templates(command: str, more: dict[str, object], expected: list[str]) -> None:
    assert filled(command, **more) == expected


def test_the_openssh_preset_omits_unset_options() -> None:
    plain = filled("openssh")
    assert plain[-3:] == ["--", "gpu1", "PROBE"]
    assert not any(argument.startswith(("-p", "-l")) for argument in plain)
    assert "-oBatchMode=yes" in plain
    assert "-oForwardAgent=no" in plain
    full = filled("openssh", user="me", port=2222)
    assert full[-5:] == ["-p2222", "-lme", "--", "gpu1", "PROBE"]


@pytest.mark.parametrize(
    ("command", "fix"),
    [
        ("x {nod} y", "did you mean {node}?"),
        ("x {other} y", "use {node}, {python}, {probe}"),
        ("x 'y", "close the quote"),
        ("", "write one"),
        ("opnssh", "did you mean openssh?"),
        ("ssh {node}", "end the command with {probe}"),
    ],
)
def test_unusable_templates_say_what_to_write(command: str, fix: str) -> None:
    with pytest.raises(CommandError) as caught:
        split(command)
    assert fix in caught.value.fix


def test_presets_are_templates() -> None:
    for name in PRESETS:
        assert split(name)


@given(st.text(min_size=1), st.text(), st.text())
def test_a_value_stays_one_argument_and_is_not_expanded(node: str, python: str, probe: str) -> None:
    arguments = filled("run --on={node} {python} {probe}", node=node, python=python, probe=probe)
    assert arguments == ["run", f"--on={node}", python, probe]
