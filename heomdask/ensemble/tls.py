"""Private connections: certificates for one run or of a site, and a word where there are none.

Takes: what a profile says of `tls`; the address of a scheduler that was started for it.
Gives: `security`, Dask's own form of it; `warn_if_open`.
Next file: `jobqueue.py`, which starts schedulers for other machines.
"""

from __future__ import annotations

import ipaddress

from distributed import Security

from heomdask.brief import install
from heomdask.ensemble.profiles import Certificates, Tls
from heomdask.errors import InputError
from heomdask.expansion.notices import warn


def security(tls: Tls | None) -> Security | None:
    """Certificates: made now and valid for this run only (True), or those of the files."""
    if isinstance(tls, Certificates):
        roles = ("client", "scheduler", "worker")
        files = {f"tls_{r}_{part}": getattr(tls, part) for r in roles for part in ("cert", "key")}
        return Security(require_encryption=True, tls_ca_file=tls.ca, **files)
    if not tls:
        return None
    try:
        made: Security = Security.temporary()
    except ImportError:
        raise InputError(
            "`tls` needs the package cryptography to make certificates, got none here; "
            f"{install('jobqueue')}, or name certificates in the profile."
        ) from None
    return made


def warn_if_open(address: str) -> None:
    """Whoever reaches an open scheduler can run code as its user."""
    scheme, _, rest = address.partition("://")
    host = rest.rpartition(":")[0].strip("[]")
    try:
        inside = ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        inside = host == "localhost"
    if scheme == "tcp" and not inside:
        warn(
            f"the scheduler at {address} is not encrypted: who can reach this port, also other "
            "users of the cluster, can run code as you; use `--tls` (tls = true in the profile)."
        )
