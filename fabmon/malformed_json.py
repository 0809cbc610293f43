"""The errors of JSON that cannot be decoded, in one place."""

import msgspec

MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for a document that is no JSON or has other types, for a text that is not
UTF-8, and for one that is nested too deeply."""
