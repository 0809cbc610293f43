"""SSH by asyncssh. Importing this package imports asyncssh: only do so when a host needs it."""

from fabmon.feeds.transports.ssh_transport import SshTransport

__all__ = ["SshTransport"]
