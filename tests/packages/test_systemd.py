"""The units of the Debian package under a real systemd: started, killed, updated, removed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from release.deb import UNITS
from tests.packages import booted, chroot
from tests.packages.booted import Run, until

pytestmark = pytest.mark.timeout(900)
SERVICES = " ".join(UNITS)
CONFIGURE = """
cat >> /etc/fabmon/fabmon.toml << END
interval_s = 2.0
[alerts.receivers.main]
type = "journald"
END
echo 'node1 address=127.0.0.1 user=node' > /etc/fabmon/hosts.txt
useradd --create-home node
keys=/var/lib/fabmon/.ssh
install -d -o fabmon -m 0700 $keys; install -d -o node -m 0700 /home/node/.ssh
runuser -u fabmon -- ssh-keygen -q -t ed25519 -N '' -f $keys/id_ed25519
install -o node $keys/id_ed25519.pub /home/node/.ssh/authorized_keys
echo "127.0.0.1 $(cat /etc/ssh/ssh_host_ed25519_key.pub)" > $keys/known_hosts
"""
METRICS = """
import pathlib, urllib.request as http
token = pathlib.Path("/var/lib/fabmon-agent/token").read_text().strip()
asked = http.Request("http://127.0.0.1:9838/metrics", headers={"Authorization": f"Bearer {token}"})
print(http.urlopen(asked).read().decode())
"""


@pytest.fixture(scope="module")
def debian(deb: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Debian with systemd, without fabmon; /root has the package, and an older one."""
    root = tmp_path_factory.mktemp("systemd") / "debian"
    chroot.make(root, *booted.INCLUDED)
    shutil.copy(deb, root / "root/new.deb")
    older_deb(deb, root / "root/older.deb", root.parent / "older")
    return root


def older_deb(deb: Path, older: Path, tree: Path) -> None:
    """A package of an earlier version: its units and its modules are others."""
    subprocess.run(["dpkg-deb", "--raw-extract", str(deb), str(tree)], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace("\nVersion: ", "\nVersion: 0.0.9~was-"))
    unit = tree / "usr/lib/systemd/system/fabmon-watch.service"
    unit.write_text(unit.read_text().replace("Description=", "Description=older "))
    (tree / "usr/lib/fabmon/gone_since.py").write_text("")
    argv = ["dpkg-deb", "--build", "--root-owner-group", "-Znone", str(tree), str(older)]
    subprocess.run(argv, check=True, capture_output=True)


def status(run: Run) -> dict[str, Any]:
    """What the watch says of itself, to its own user."""
    asked = "runuser -u fabmon -- fabmon query --socket /run/fabmon/watch.sock status"
    found: dict[str, Any] = json.loads(run(asked))
    assert found["nodes_up"] == 1
    return found


def shown(run: Run, unit: str, *names: str) -> list[str]:
    """Properties of a unit."""
    lines = run(f"systemctl show -p {','.join(names)} {unit}").splitlines()
    values = dict(line.split("=", 1) for line in lines)
    return [values[name] for name in names]


def proc_status(run: Run, unit: str) -> dict[str, str]:
    (pid,) = shown(run, unit, "MainPID")
    lines = run(f"cat /proc/{pid}/status").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def alerts(run: Run) -> list[tuple[str, str]]:
    """Change and cause of the alerts in the journal."""
    lines = run("journalctl --quiet -t fabmon FABMON_CLUSTER=hosts -o json").splitlines()
    return [(each["FABMON_CHANGE"], each["FABMON_CAUSE"]) for each in map(json.loads, lines)]


def test_the_units_run_without_rights_and_start_again(debian: Path, tmp_path: Path) -> None:
    with booted.booted(debian, tmp_path) as run:
        run("dpkg --install /root/new.deb")
        run(f"systemd-analyze verify --man=no {' '.join(f'{unit}.service' for unit in UNITS)}")
        run(f"{CONFIGURE}\nsystemctl enable --now {SERVICES}")
        assert until(lambda: status(run))["interval_s"] == 2.0, "as fabmon.toml says"
        assert "fabmon_node_info{" in until(lambda: run(f"python3 -c '{METRICS}'"))
        for unit in UNITS:
            process = proc_status(run, unit)
            assert process["CapEff"] == process["CapBnd"] == "0000000000000000"
            assert (process["NoNewPrivs"], process["Seccomp"]) == ("1", "2")
            assert process["Uid"].split()[0] != "0"
        assert run("stat -c %a /run/fabmon /run/fabmon/watch.sock").split() == ["700", "600"]

        run("systemctl kill --signal=KILL fabmon-watch fabmon-record")
        until(lambda: _restarted(run))
        until(lambda: status(run))

    with booted.booted(debian, tmp_path) as run:
        until(lambda: status(run))  # They start with the machine.
        until(lambda: run("test $(ls /var/lib/fabmon/*.fabrec | wc -l) = 3"))
        run(f"systemctl stop {SERVICES}")
        for unit in UNITS:
            assert shown(run, unit, "ActiveState", "Result") == ["inactive", "success"]
        intact = run("runuser -u fabmon -- fabmon verify /var/lib/fabmon")
        assert intact.count(": intact") == 3, intact


def test_an_update_keeps_settings_and_state_and_a_removal_leaves_those_of_the_user(
    debian: Path, tmp_path: Path
) -> None:
    with booted.booted(debian, tmp_path) as run:
        run("dpkg --install /root/older.deb")
        run(f"{CONFIGURE}\nsystemctl enable --now fabmon-watch fabmon-record")
        until(lambda: status(run))
        run("systemctl stop ssh ssh.socket; pkill -u node sshd")
        until(lambda: _opened(run))
        settings = run("sha256sum /etc/fabmon/*")
        pids = [shown(run, unit, "MainPID") for unit in ("fabmon-watch", "fabmon-record")]

        said = run("dpkg --install /root/new.deb < /dev/null 2>&1")
        assert "Unpacking fabmon" in said
        assert " over (0.0.9~was-" in said
        assert "onfiguration file" not in said, "nothing is asked"
        assert run("sha256sum /etc/fabmon/*") == settings
        assert run("ls /usr/lib/fabmon/gone_since.py 2>/dev/null || true") == ""
        description, state = shown(run, "fabmon-watch", "Description", "ActiveState")
        assert (description, state) == ("fabmon findings and alerts", "active")
        for unit, pid in zip(("fabmon-watch", "fabmon-record"), pids, strict=True):
            assert shown(run, unit, "MainPID") != pid, "the new one runs"
        assert shown(run, "fabmon-agent", "ActiveState") == ["inactive"], "it did not run before"

        run("systemctl start ssh")
        until(lambda: status(run))
        until(lambda: run("test $(ls /var/lib/fabmon/*.fabrec | wc -l) = 2"))
        until(lambda: _closed(run), 180)  # What is not found again in two minutes.
        assert [each[0] for each in alerts(run)] == ["open", "close"], "nothing is sent twice"
        run("systemctl stop fabmon-record")
        intact = run("runuser -u fabmon -- fabmon verify /var/lib/fabmon")
        assert intact.count(": intact") == 2

        run("dpkg --remove fabmon")
        assert shown(run, "fabmon-watch", "LoadState", "ActiveState") == ["not-found", "inactive"]
        assert run("pgrep -u fabmon || true") == ""
        assert run("sha256sum /etc/fabmon/*") == settings
        run("dpkg --purge fabmon")
        left = run("find / -xdev -path /var/lib/fabmon -prune -o -name '*fabmon*' -print").split()
        assert left == ["/etc/fabmon"]
        assert run("ls /etc/fabmon") == "hosts.txt\n"
        assert run("systemctl --failed --no-legend") == ""
        assert run("ls /var/lib/fabmon/*.fabrec | wc -l") == "2\n"


def _restarted(run: Run) -> None:
    assert shown(run, "fabmon-watch", "NRestarts") == ["1"]
    assert shown(run, "fabmon-record", "NRestarts") == ["1"]


def _opened(run: Run) -> None:
    assert ("open", "node_lost") in alerts(run)


def _closed(run: Run) -> None:
    assert ("close", "node_lost") in alerts(run)
