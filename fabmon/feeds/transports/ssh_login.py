"""One SSH login: its limits, and the precise reason when it fails, with what to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import asyncssh

from fabmon.fabric.time_wording import interval
from fabmon.fabric.wording import plural
from fabmon.feeds.errors import HostKeyError, LoginRefused, Misbehaved, NodeError, Unreachable
from fabmon.feeds.token_bucket import TokenBucket, over_budget
from fabmon.feeds.transports.ssh_identities import Identities
from fabmon.feeds.transports.ssh_known_hosts import AcceptCommand, TrustedKeys

_KEY_MADE = "~/.ssh/id_ed25519"


def misconduct(connection: asyncssh.SSHClientConnection | None) -> Misbehaved | None:
    """Why a connection was closed because of what it cost, if it was."""
    failure = None if connection is None else connection.get_extra_info("misbehaved")
    return failure if isinstance(failure, Misbehaved) else None


class SshTimeouts(NamedTuple):
    """Seconds to a TCP connection, then to the key exchange, then to the end of the login."""

    connect_s: float = 10.0
    silence_s: float = 10.0
    login_s: float = 20.0


class LoginObserver(asyncssh.SSHClient):
    """The client side of one login: rejects unknown keys, answers no prompts, notes the progress.

    `limit` is moved as the login proceeds, by the `timeouts`. `where` names the server in messages;
    `accept` is what accepts its host key, `proxy` the program of its ProxyCommand. `identities` are
    the keys of this login, `agent_keys` those that the agent holds. What the server sends may cost
    `cpu`, packets that SSH ignores included: of a jump host until it is logged in, as then it
    carries what nodes send.
    """

    def __init__(
        self,
        *,
        where: str,
        trusted: TrustedKeys,
        accept: AcceptCommand,
        proxy: str,
        identities: Identities,
        agent_keys: Sequence[bytes],
        limit: asyncio.Timeout,
        timeouts: SshTimeouts,
        cpu: TokenBucket,
        is_jump: bool,
    ) -> None:
        self._where = where
        self._trusted = trusted
        self._accept = accept
        self._proxy = proxy
        self._identities = identities
        self._agent_keys = agent_keys
        self._limit = limit
        self._timeouts = timeouts
        self._cpu = cpu
        self._is_jump = is_jump
        self._connection: asyncssh.SSHClientConnection | None = None
        self._user: str | None = None
        self._requested: list[str] = []
        self._rejection: HostKeyError | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """TCP is connected."""
        self._connection = conn
        self._extend(self._timeouts.silence_s)
        received: Any = conn.data_received
        # asyncssh reads at full speed, and reports most packets to nobody.
        conn.data_received = partial(self._receive, conn, received)  # type: ignore[method-assign]

    def _receive(
        self, conn: asyncssh.SSHClientConnection, received: Any, data: bytes, *kind: Any
    ) -> None:
        began_s = time.thread_time()
        received(data, *kind)
        is_metered = not (self._is_jump and conn.get_extra_info("username"))
        if is_metered and not self._cpu.take(time.thread_time() - began_s, time.monotonic()):
            conn.set_extra_info(misbehaved=over_budget(self._cpu))
            conn.abort()

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Reject a key that is not in known_hosts."""
        self._rejection = self._trusted.rejection(key, self._accept)
        return False

    def begin_auth(self, username: str) -> None:
        """The key exchange is done, the login begins."""
        self._user = username
        self._extend(self._timeouts.login_s)

    def public_key_auth_requested(self) -> None:
        """The server accepts public keys; None says that there are no more to offer."""
        self._requested.append("publickey")

    def password_auth_requested(self) -> None:
        """The server accepts a password; None offers none."""
        self._requested.append("password")

    def kbdint_auth_requested(self) -> None:
        """The server asks for a password or a second factor; None offers none."""
        self._requested.append("keyboard-interactive")

    def error(self, error: BaseException, host: str, port: int) -> NodeError:
        """The NodeError for a login that failed with `error`."""
        if isinstance(error, TimeoutError):
            return self._timeout_error()
        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            return self._rejection or HostKeyError(f"host key rejected: {error.reason}")
        if isinstance(error, asyncssh.PermissionDenied):
            return self._permission_error(error)
        if isinstance(error, asyncssh.KeyExchangeFailed):
            if self._trusted.has_entry(self._accept):
                return self._trusted.rejection(None, self._accept)
            return Unreachable(f"{self._where}: no common algorithms: {error.reason}", "ssh")
        if isinstance(error, asyncssh.ChannelOpenError):
            jump = self._accept.jump
            where = f"{jump} cannot reach {host}:{port}" if jump else self._where
            return Unreachable(f"{where}: {error.reason}")
        if isinstance(error, asyncssh.ProtocolError) and "uthentication" in error.reason:
            message = f"{self._where}: {error.reason}{self._fewer()}"
            return LoginRefused(message, "permission denied")
        if isinstance(error, asyncssh.DisconnectError):
            return self._disconnect_error(error)
        if self._proxy and isinstance(error, FileNotFoundError | PermissionError):
            what = f"ProxyCommand {self._proxy}: {str(error.strerror).lower()} on this machine"
            text = f"{self._where}: {what}: install it, or correct its path in ssh_config"
            return Unreachable(text, "ssh config")
        if self._proxy and isinstance(error, ConnectionError):
            # It ended before what is written to it could be.
            return self._proxy_ended()
        return Unreachable(f"{self._where}: {error}")

    def _extend(self, seconds: float) -> None:
        if not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + seconds)

    def _timeout_error(self) -> NodeError:
        silence = f"{interval(self._timeouts.silence_s)}"
        if self._user is not None:
            what = f"the login of {self._user} did not finish in {interval(self._timeouts.login_s)}"
        elif self._connection is None:
            what = f"no answer through {self._accept.jump or 'its proxy'} in {silence}"
        elif not self._connection.get_extra_info("server_version"):
            what = f"TCP connected, then silence for {silence} (is it an SSH server?)"
        else:
            what = f"the key exchange did not finish in {silence}"
        return Unreachable(f"{self._where}: {what}", "timeout")

    def _permission_error(self, error: asyncssh.PermissionDenied) -> NodeError:
        methods = ", ".join(dict.fromkeys(self._requested))
        listed = f" ({methods})" if methods else ""
        message = f"permission denied{listed} for user {self._user or '?'}"
        if "password" in methods or "keyboard-interactive" in methods:
            keys_too = "accepts none of our keys and " if "publickey" in methods else ""
            message += (
                f": it {keys_too}asks for a password or a second factor; for the latter open a "
                "ControlMaster with ssh and use via=exec command=openssh"
            )
        elif not methods:
            message += f": {error.reason}"
        else:
            message += f": {self._unaccepted()}"
        return LoginRefused(message, "permission denied")

    def _unaccepted(self) -> str:
        """Why no key was accepted, and what to do."""
        found = self._identities
        ways = "; ".join(found.ways_out(self._agent_keys))
        offered = [key.path for key in found.files]
        add = f"authorized_keys of {self._user or '?'} there"
        held = found.of_agent(self._agent_keys)
        if not offered and not held:
            if ways:
                return f"no key to offer: {ways}"
            agent = "" if found.agent is None else ", and the agent holds none"
            return (
                f"there is no key here to log in with{agent}: make one with"
                f" ssh-keygen -t ed25519 -f {_KEY_MADE}, and add {_KEY_MADE}.pub to {add}"
            )
        names = self._offered()
        public = f"{offered[0]}.pub" if offered else "a line of ssh-add -L"
        text = f"it accepts none of our keys ({names}): add {public} to {add}, or is user= wrong?"
        return f"{text}; {ways}" if ways else text

    def _offered(self) -> str:
        """The keys of this login, in words."""
        held = self._identities.of_agent(self._agent_keys)
        files = [key.path for key in self._identities.files]
        return ", ".join([*files, *([f"{plural(held, 'key')} of the agent"] if held else [])])

    def _fewer(self) -> str:
        """What to do where the server ended the login because of the number of keys."""
        return (
            f": it permits fewer keys in a login (MaxAuthTries) than there are ({self._offered()});"
            " name the one that it accepts in ssh_config: IdentityFile FILE and IdentitiesOnly yes"
        )

    def _proxy_ended(self) -> NodeError:
        what = f"{self._where}: ProxyCommand {self._proxy} ended before SSH began: run it by hand;"
        return Unreachable(f"{what} fabmon starts it without a shell", "closed")

    def _disconnect_error(self, error: asyncssh.DisconnectError) -> NodeError:
        version = self._connection and self._connection.get_extra_info("server_version")
        if not version and isinstance(error, asyncssh.ProtocolError):
            return Unreachable(f"{self._where}: not an SSH server: {error.reason}", "ssh")
        if not version and self._proxy:
            return self._proxy_ended()
        if not version:
            what = "closed the connection before SSH began (MaxStartups? a firewall?)"
            return Unreachable(f"{self._where} {what}", "closed")
        when = "during the login" if self._user is not None else "before the login"
        return Unreachable(f"{self._where} closed the connection {when}: {error.reason}", "closed")
