"""zstd: part of Python from 3.14 on, and the same module as a package before."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdError, compress, decompress
else:
    from backports.zstd import ZstdError, compress, decompress

__all__ = ["ZstdError", "compress", "decompress"]
