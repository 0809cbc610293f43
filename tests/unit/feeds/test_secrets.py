"""Secret files: read if they are private, else rejected with the fix."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fabmon.feeds.access import read_secret
from fabmon.feeds.errors import BadSecret
from fabmon.feeds.http_client import basic_authorization
from fabmon.secret_files import secrets_in, without_secrets


def secret(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("data", [b"s3cret", b"s3cret\n", b"s3cret\r\n"])
def test_a_secret_is_the_one_line_of_its_file(tmp_path: Path, data: bytes) -> None:
    assert read_secret(secret(tmp_path / "token", data)) == "s3cret"
    assert read_secret(str(secret(tmp_path / "token", data, 0o400))) == "s3cret"


def test_spaces_belong_to_a_secret(tmp_path: Path) -> None:
    assert read_secret(secret(tmp_path / "token", b" a b \n")) == " a b "


def test_a_tilde_in_the_path_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    secret(tmp_path / "token", b"s3cret\n")
    assert read_secret("~/token") == "s3cret"


@pytest.mark.parametrize(
    ("authorization", "said"),
    [
        ("Bearer T0KEN", "no T0KEN here"),
        (basic_authorization("monitor:S3:CRET"), "no S3:CRET here"),
        (basic_authorization("monitor:S3CRET"), "no bW9uaXRvcjpTM0NSRVQ= here"),
        ("Basic a-token-of-UFM", "no a-token-of-UFM here"),
    ],
)
def test_what_a_server_quotes_of_a_secret_is_left_out(authorization: str, said: str) -> None:
    assert without_secrets(said, secrets_in(authorization)) == "no … here"


def test_words_that_a_short_secret_is_part_of_stay() -> None:
    assert without_secrets("a login", secrets_in(basic_authorization("monitor:log"))) == "a login"
    assert without_secrets("a login", secrets_in("")) == "a login"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_access_is_rejected_with_the_fix(tmp_path: Path, mode: int) -> None:
    path = secret(tmp_path / "token", b"s3cret\n", mode)
    with pytest.raises(BadSecret, match=f"others can read it: chmod 600 {path}"):
        read_secret(path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"one\ntwo\n", "one line"),
        (b"\xff\xfe", "one line"),
        (b"x" * 5000, "one line"),
        (b"a\x1b[2J", "one line"),
    ],
)
def test_malformed_secrets_are_rejected_and_never_quoted(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    path = secret(tmp_path / "token", data)
    with pytest.raises(BadSecret) as caught:
        read_secret(path)
    assert reason in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadSecret, match="no such file; secret= is the token"):
        read_secret(tmp_path / "nowhere", "secret= is the token")


def test_a_directory_and_a_pipe_are_rejected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(BadSecret, match="not a regular file"):
            read_secret(path)
