"""Where a server is: its URL taken apart, its name looked up once, its TLS set up."""

from __future__ import annotations

import socket
import ssl
from urllib.parse import urlsplit

import msgspec

from advisor.errors import EngineUnavailable, InvalidInput
from verify.client.types import Target


class Address(msgspec.Struct, frozen=True):
    """`ip` is looked up before the clock starts, no request waits for a name; `path` has no slash at its end."""

    host: str
    ip: str
    port: int
    path: str
    tls: ssl.SSLContext | None


def address_of(target: Target) -> Address:
    """Raises InvalidInput for a URL or a CA file that cannot be used, EngineUnavailable for an unknown host."""
    parts = urlsplit(target.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput("the server's URL must begin with http:// or https://", where="url")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput("the server's URL must not hold a name or a password", where="url")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise InvalidInput("the port of the server's URL is no port", where="url") from None
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise EngineUnavailable(f"the host {parts.hostname} is not known: {error.strerror}", where="url") from None
    addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
    ip = next((a for a in addresses if _takes_connections(a, port)), None) if len(addresses) > 1 else None
    return Address(parts.hostname, ip or addresses[0], port, parts.path.rstrip("/"), _tls(target, parts.scheme))


def _takes_connections(ip: str, port: int) -> bool:
    try:
        with socket.create_connection((ip, port), timeout=2.0):
            return True
    except OSError:
        return False


def _tls(target: Target, scheme: str) -> ssl.SSLContext | None:
    if scheme != "https":
        return None
    try:
        return ssl.create_default_context(cafile=target.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"cannot read certificates from {target.ca_file}: {error}", where="ca_file", hint="a PEM file is needed"
        ) from None
