"""The copper of a wire, until killed: `python -m tests.lab.copper TAP FAR_NAMESPACE FAR_TAP`."""

from __future__ import annotations

import fcntl
import os
import selectors
import struct
import sys

from tests.lab import netns

_TUNSETIFF = 0x400454CA
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
_FRAME_BYTES = 65_536
_FRAMES_AT_ONCE = 64


def _open(tap: str) -> int:
    """Make a tap in the namespace of this thread; what it sends can be read."""
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(handle, _TUNSETIFF, struct.pack("16sH22x", tap.encode(), _IFF_TAP | _IFF_NO_PI))
    return handle


def _carry(source: int, sink: int) -> None:
    for _ in range(_FRAMES_AT_ONCE):
        try:
            frame = os.read(source, _FRAME_BYTES)
        except BlockingIOError:
            return
        try:
            os.write(sink, frame)
        except OSError:  # The far end is down or full: the frame is lost, as on copper.
            continue


def main(tap: str, far_ns: str, far_tap: str) -> None:
    """What one tap sends is what the other receives."""
    near, far = _open(tap), netns.call_in(far_ns, lambda: _open(far_tap))
    with selectors.DefaultSelector() as selector:
        selector.register(near, selectors.EVENT_READ, far)
        selector.register(far, selectors.EVENT_READ, near)
        # Copper does not wait for a CPU.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        print("ready", flush=True)
        while True:
            for key, _ in selector.select():
                _carry(key.fd, key.data)


if __name__ == "__main__":
    main(*sys.argv[1:4])
