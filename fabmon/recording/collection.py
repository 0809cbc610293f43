"""Making many objects at once, without the garbage collector looking at all others meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """No collection inside: ten thousand lists of a seek would set off several, each of which
    looks at the hellos of all nodes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
