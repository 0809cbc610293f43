"""The hosts file: what is read from it, and how all that is wrong with it is reported at once."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabmon.fabric.hosts import host_line, hosts_file
from fabmon.fabric.hosts.hosts_file import HostsFileError
from fabmon.fabric.input_files import read_input
from fabmon.fabric.model import Host
from fabmon.fabric.topology import plan_files
from fabmon.fabric.topology.plan import TopologyError
from fabmon.feeds.scrape.exporter_tables import exporter_tables
from fabmon.session.config import load
from fabmon.session.errors import UsageError

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "goldens"


def parse(text: str) -> list[Host]:
    return hosts_file.parse(text, "hosts.txt")


def complaint(text: str) -> str:
    with pytest.raises(HostsFileError) as caught:
        parse(text)
    return str(caught.value)


def names(text: str) -> list[str]:
    return [host.name for host in parse(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu[001-003]", ["gpu001", "gpu002", "gpu003"]),
        ("rack[1-2]node[1-2]", ["rack1node1", "rack1node2", "rack2node1", "rack2node2"]),
        ("a,b[1-2]", ["a", "b1", "b2"]),
        ("gpu[1-8/3]", ["gpu1", "gpu4", "gpu7"]),
        ("gpu[1-4]!gpu3", ["gpu1", "gpu2", "gpu4"]),
        ("node01 slots=8", ["node01"]),
        ("node01 slots=8 max_slots=16\nnode02 max-slots=4", ["node01", "node02"]),
        ("fe80::1", ["fe80::1"]),
        ("10.0.0.7", ["10.0.0.7"]),
        ("\ufeffgpu1\r\ngpu2\r\n", ["gpu1", "gpu2"]),
        ("# all of them\n\n   gpu1   # the first\n", ["gpu1"]),
    ],
)
def test_node_sets(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("root@192.0.2.4 slots=1", ("192.0.2.4", "root", None)),
        ("root@gpu[1-1]", ("gpu1", "root", None)),
        ("192.0.2.4:2222", ("192.0.2.4", None, 2222)),
        ("me@node01:2222 group=a", ("node01", "me", 2222)),
        ("me@node01:300", ("node01", "me", 300)),
        ("node01:22", ("node01", None, 22)),
        ("node01:161 via=snmp secret=f", ("node01", None, 161)),
        ("node01:9100 via=exporters", ("node01", None, 9100)),
        ("[2001:db8::1]:2222", ("2001:db8::1", None, 2222)),
        ("me@[2001:db8::1]", ("2001:db8::1", "me", None)),
        ("[::1]:2222", ("0::1", None, 2222)),
        ("fe80::1:9838", ("fe80::1:9838", None, None)),
        # The slots of MPI machine files.
        ("node01:8", ("node01", None, None)),
        ("node01:128 slots=128", ("node01", None, None)),
        ("192.0.2.4:8", ("192.0.2.4", None, None)),
    ],
)
def test_a_user_and_a_port_beside_a_name(
    text: str, expected: tuple[str, str | None, int | None]
) -> None:
    (host,) = parse(text)
    assert (host.name, host.user, host.port) == expected


def test_a_host_option_has_no_slots() -> None:
    assert [host.port for host in hosts_file.from_nodesets(["gpu[1-2]:8"])] == [8, 8]


@pytest.mark.parametrize(
    ("line", "column", "problem"),
    [
        ("node01:99999", 8, "'99999' is not a TCP port"),
        ("-oProxyCommand=x@node01", 1, "is not a user name"),
        ("me@node01 user=me", 11, "user= is given twice"),
        ("node01:2222 port=22", 13, "port= is given twice"),
        ("gpu[-11-99999999999999]", 1, "not a node set: "),
        ("@compute", 1, "groups such as @compute are not supported"),
        ("na[1-2]me:22,b:33", 10, "a list of nodes has one port, at its end"),
        ("me@a,gpu[1,3]:22,b", 14, "a list of nodes has one port, at its end"),
    ],
)
def test_a_wrong_user_or_port_beside_a_name(line: str, column: int, problem: str) -> None:
    message = complaint(line)
    assert message.startswith(f"hosts.txt:1:{column}: ")
    assert problem in message


def test_every_key() -> None:
    line = (
        "leaf1 address=10.0.0.1 user=monitor port=2222 via=exec python=/opt/py/bin/python3 "
        'command="podman exec -i {node} {python}" role=switch group="row 7" '
        "speed.up*=400G speed=100M speed.up1=2.5G"
    )
    assert parse(line) == [
        Host(
            name="leaf1",
            address="10.0.0.1",
            user="monitor",
            port=2222,
            via="exec",
            command="podman exec -i {node} {python}",
            python="/opt/py/bin/python3",
            role="switch",
            group="row 7",
            speeds=(("*", 1e8), ("up*", 4e11), ("up1", 2.5e9)),
        )
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gpu[1-3] address=10.0.0.[1-3]", ["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
        ("gpu[1-2] address={node}.ib.example", ["gpu1.ib.example", "gpu2.ib.example"]),
        ("gpu1 address=[fe80::1]", ["fe80::1"]),
        ("gpu1 address=fe80::1", ["fe80::1"]),
        ("gpu[1-2]", ["gpu1", "gpu2"]),
    ],
)
def test_addresses(line: str, expected: list[str]) -> None:
    assert [host.address for host in parse(line)] == expected


def test_a_command_alone_means_via_exec() -> None:
    assert parse("gpu1 command=openssh")[0].via == "exec"


def test_the_example_is_a_hosts_file() -> None:
    hosts = hosts_file.read(ROOT / "config" / "hosts.example.txt")
    assert len(hosts) == 128 + 6 + 2 + 16 + 6 + 1 + 8 + 2 + 10 + 1 + 1 + 2 + 1


def test_all_problems_are_reported_at_once_each_with_its_place_and_its_fix() -> None:
    message = complaint((GOLDEN / "hosts.bad.txt").read_text())
    assert message + "\n" == (GOLDEN / "hosts.bad.expected.txt").read_text()


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "\ufeff"])
def test_a_file_without_nodes(text: str) -> None:
    assert complaint(text) == (
        "hosts.txt: no nodes: write one node set per line, as in gpu[001-128]"
    )


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"gpu1\n\xff\xfegpu2", ":2:1: a byte that is not UTF-8: save the file as UTF-8"),
        ("gpu1\n".encode("utf-16"), ": the file is UTF-16: save it as UTF-8"),
    ],
)
def test_files_that_are_not_utf_8(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "hosts.txt"
    path.write_bytes(data)
    with pytest.raises(HostsFileError) as caught:
        hosts_file.read(path)
    assert str(caught.value).endswith(expected)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HostsFileError, match="no such file"):
        hosts_file.read(tmp_path / "none.txt")


def test_a_pipe_without_a_writer_does_not_block(tmp_path: Path) -> None:
    pipe = tmp_path / "hosts.txt"
    os.mkfifo(pipe)
    with pytest.raises(HostsFileError, match="no nodes"):
        hosts_file.read(pipe)
    with pytest.raises(TopologyError, match="topology"):
        plan_files.read(pipe)


def test_a_pipe_that_does_not_end_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "hosts.txt"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, b"gpu1")
    with pytest.raises(TimeoutError, match="the pipe did not end within"):
        read_input(pipe, 1000, wait_s=0.2)
    os.close(writer)


def test_a_file_that_is_too_large_is_refused_not_cut(tmp_path: Path) -> None:
    large = tmp_path / "hosts.txt"
    large.write_bytes(b"#" * (17 << 20))
    with pytest.raises(HostsFileError, match="more than 16 MiB"):
        hosts_file.read(large)
    with pytest.raises(UsageError, match="more than 16 MiB"):
        load(large)


def test_the_output_of_a_command_is_a_hosts_file() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 0.2; echo gpu1"], stdout=subprocess.PIPE) as command:
        assert command.stdout is not None
        hosts = hosts_file.read(Path(f"/dev/fd/{command.stdout.fileno()}"))
    assert [host.name for host in hosts] == ["gpu1"]


def test_host_options() -> None:
    hosts = hosts_file.from_nodesets(["gpu[1-2]", "leaf1 role=switch"])
    assert [(host.name, host.role) for host in hosts] == [
        ("gpu1", "host"),
        ("gpu2", "host"),
        ("leaf1", "switch"),
    ]
    with pytest.raises(HostsFileError, match=r"--host:2:1: gpu1 is listed on line 1 already"):
        hosts_file.from_nodesets(["gpu1", "gpu1"])


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=x", "$(touch x)", "a;b", "a`b`", "a|b", "../x", "é", "a\x1b[31m", "."]
)
def test_names_that_could_be_anything_but_names_are_refused(name: str) -> None:
    assert re.search(r"(cannot be in a node set|is not a node name)", complaint(name))


def test_a_huge_range_is_refused_before_it_is_folded_out() -> None:
    assert "more than 65536 nodes" in complaint("gpu[1-99999999999999]")
    assert "more than 65536 nodes" in complaint("a[1-1000]b[1-1000]")


def test_a_file_that_is_wrong_in_every_line_is_no_flood() -> None:
    lines = complaint("gpu1 nothing=1\n" * 100_000).splitlines()
    assert len(lines) == 101
    assert lines[-1] == "hosts.txt: 99900 more problems"


def test_a_line_that_would_take_hours_is_refused() -> None:
    assert "a line of more than 131072 characters" in complaint("gpu1," * 1_000_000 + "gpu1")


@given(st.text(max_size=200))
@settings(max_examples=300)
def test_any_text_is_hosts_or_problems_that_lie_inside_it(text: str) -> None:
    try:
        hosts = parse(text)
    except HostsFileError as error:
        message = str(error).replace("\n", "")
        lines = re.split("\r\n|\r|\n", text.removeprefix("\ufeff"))
        for problem in error.problems:
            if problem.line == 0:
                assert (problem.column, problem.text) == (0, "no nodes")
                continue
            assert 1 <= problem.line <= len(lines)
            assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
        assert message.isprintable()
    else:
        assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*", host.name) for host in hosts)


_LABEL = st.from_regex(r"[a-z]{1,6}", fullmatch=True)


@given(
    _LABEL,
    st.integers(0, 50),
    st.integers(0, 40),
    st.integers(1, 4),
    st.lists(
        st.sampled_from(["user=me", "port=22", "group=a", "speed=100G", "slots=8"]), unique=True
    ),
    st.sampled_from(["", "  # comment", "\t#x=y"]),
)
def test_what_is_written_is_read(
    label: str, low: int, more: int, width: int, keys: list[str], comment: str
) -> None:
    numbers = [str(number).zfill(width) for number in range(low, low + more + 1)]
    line = f"  {label}[{numbers[0]}-{numbers[-1]}] {' '.join(keys)}{comment}"
    if len(numbers[0]) != len(numbers[-1]) and width > 1:
        return
    hosts = parse(line)
    assert sorted(host.name for host in hosts) == sorted(label + number for number in numbers)
    assert all((host.user == "me") == ("user=me" in keys) for host in hosts)
    assert all((host.speeds == (("*", 1e11),)) == ("speed=100G" in keys) for host in hosts)


def test_a_token_that_would_go_out_as_clear_text_is_refused_unless_that_was_said() -> None:
    line = "gpu[1-2] via=exporters secret=~/token"
    assert "the secret would be sent over the network in clear text" in complaint(line)
    for said in (f"{line} tls=no", f"{line} tls=yes", "localhost via=exporters secret=t"):
        assert parse(said)
    assert parse("gpu1 via=exporters secret=t address=127.0.0.1")


@pytest.mark.parametrize(
    ("line", "column", "complaint"),
    [
        ("a address=127.0.0.1:9838", 11, "write address=127.0.0.1 port=9838"),
        ("a address=[::1]:9838", 11, "write address=::1 port=9838"),
        ("a[1-2] address={node}.lab:9838", 16, "write address={node}.lab port=9838"),
        ("a address=here:9100 via=exporters", 11, "write address=here scrape=9100"),
        ("a speed=400", 9, "did you mean 400G?"),
        ("a speed.up*=400k", 13, "did you mean 400G?"),
        ("a sources=ib,nope", 14, "there is no source 'nope'"),
        ("a sources=+ib_fabrik", 11, "did you mean ib_fabric?"),
        ("a via=exporters scrape=9100,node_exportr:9100", 29, "did you mean node_exporter?"),
        ("a via=exporters scrape=nine", 24, "write [KIND:]PORT[/PATH]"),
        ("a via=exporters scrape=99999", 24, "write [KIND:]PORT[/PATH]"),
    ],
)
def test_slips_have_their_place_and_what_to_write(line: str, column: int, complaint: str) -> None:
    with pytest.raises(HostsFileError) as caught:
        parse(line)
    assert str(caught.value).startswith(f"hosts.txt:1:{column}: ")
    assert complaint in str(caught.value)


def test_an_address_of_version_6_is_no_address_with_a_port() -> None:
    assert parse("a address=fe80::1:9838")[0].address == "fe80::1:9838"


def test_the_telemetry_of_a_ufm_may_be_asked_for_over_tls() -> None:
    host = parse("ufm via=ufm scrape=https:9002/csv/metrics")[0]
    assert host.scrape == ("https:9002/csv/metrics",)


def test_a_hosts_file_accepts_every_exporter() -> None:
    assert sorted(exporter_tables().by_name) == sorted(host_line.EXPORTERS)


@pytest.mark.parametrize(
    "keys",
    [
        "via=exec command=srun",
        'via=exec "command"=srun',
        "via=exec 'com'mand=srun",
        'via=exec "command=srun"',
        "via=exporters tls=yes secret=~/.token",
        'via=exporters tls=yes "secret"=~/.token',
    ],
)
def test_a_file_with_commands_or_secrets_that_everyone_can_write_to_is_refused(
    tmp_path: Path, keys: str
) -> None:
    path = tmp_path / "hosts.txt"
    path.write_text(f"gpu001 {keys}\n")
    assert [host.name for host in hosts_file.read(path)] == ["gpu001"]
    path.chmod(0o666)
    with pytest.raises(HostsFileError, match=r"everyone can write to it, .*: chmod o-w"):
        hosts_file.read(path)
    path.write_text("gpu001\n")
    assert [host.name for host in hosts_file.read(path)] == ["gpu001"]


@pytest.mark.parametrize(
    "zone",
    [
        "$(id)",
        "eth0;id",
        "`id`",
        "a b",
        "a|b",
        "-oProxyCommand=x",
        "",
        "%eth0",
        "a\x1b[31m",
        "${HOME}",
    ],
)
def test_the_zone_of_an_address_is_no_text_of_a_shell(zone: str) -> None:
    """A ProxyCommand of ssh_config with %h has the address in its text."""
    with pytest.raises(HostsFileError):
        parse(f'gpu1 address="fe80::1%{zone}"\n')


def test_the_zone_of_an_address_is_an_interface() -> None:
    (host,) = parse("gpu1 address=fe80::1%enp1s0f0.100\n")
    assert host.address == "fe80::1%enp1s0f0.100"


def test_many_lines_of_as_many_nodes_as_a_line_may_have_are_refused_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They were counted once all were expanded: a file of 20 kB took all memory."""
    monkeypatch.setattr("fabmon.fabric.hosts.nodesets.MAX_NODES", 20)
    for line in ("a{}x[1-9]\n", "a[1-9]\n"):
        with pytest.raises(HostsFileError) as caught:
            hosts_file.parse("".join(line.format(number) for number in range(1000)), "h.txt")
        assert len(caught.value.problems) <= 30
    with pytest.raises(HostsFileError, match=r"h\.txt:4:1: more than 20 nodes"):
        hosts_file.parse("".join(f"a{number}x[1-9]\n" for number in range(1000)), "h.txt")
