"""Who we are to an SNMP agent: a community, or a user of version 3."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from fabmon.feeds.errors import BadSecret

AUTH = ("MD5", "SHA", "SHA224", "SHA256", "SHA384", "SHA512")
PRIV = ("DES", "AES", "AES192", "AES256", "AES192C", "AES256C")
"""As net-snmp calls them; `C` is Cisco's way to lengthen a key."""

_FORM = "v3 USER AUTH PASSWORD [PRIV PASSWORD]"


class Credentials(NamedTuple):
    """`user` of version 3, or a `community` of version 2c. Without `priv` nothing is encrypted."""

    community: str = ""
    user: str = ""
    auth: str = ""
    auth_password: str = ""
    priv: str = ""
    priv_password: str = ""


def credentials(secret: str) -> Credentials:
    """What a secret's line says. Raises BadSecret, which does not repeat it.

    A line that begins with `v3 ` is a user, as in `v3 fabmon SHA256 "a password" AES another`; any
    other is a community.
    """
    if not secret.startswith("v3 "):
        return Credentials(community=secret)
    try:
        words = shlex.split(secret)[1:]
    except ValueError:
        raise BadSecret("the secret has a quote that is never closed") from None
    if len(words) not in (3, 5):
        raise BadSecret(f"a secret of version 3 is {_FORM}: {len(words) + 1} words are there")
    user, auth, auth_password, priv, priv_password = (*words, "", "")[:5]
    auth, priv = (word.upper().replace("-", "").replace("SHA1", "SHA") for word in (auth, priv))
    priv = "AES" if priv == "AES128" else priv
    if auth not in AUTH:
        raise BadSecret(f"no authentication of that name: one of {', '.join(AUTH)}")
    if len(words) == 5 and priv not in PRIV:
        raise BadSecret(f"no encryption of that name: one of {', '.join(PRIV)}")
    short = min(len(word) for word in (auth_password, priv_password) if word or priv)
    if short < 8:
        raise BadSecret("a password of version 3 has 8 characters or more")
    return Credentials("", user, auth, auth_password, priv, priv_password)
