"""TOML of files."""

import tomllib
from typing import Any


def loads(text: str) -> dict[str, Any]:
    """The values of a text. Raises TOMLDecodeError, also for numbers of thousands of digits and for
    what is nested too deeply."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        raise tomllib.TOMLDecodeError("a number is too long") from None
    except RecursionError:
        raise tomllib.TOMLDecodeError("brackets are nested too deep") from None
