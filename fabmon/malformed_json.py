"""The errors of JSON that cannot be decoded, and how much is in what can be, in one place."""

import msgspec

MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for a document that is no JSON or has other types, for a text that is not
UTF-8, and for one that is nested too deeply."""


def values_in(body: bytes) -> int:
    """As many values as a document in JSON has at most, counted without decoding it."""
    return sum(map(body.count, (b",", b"[", b"{")))
