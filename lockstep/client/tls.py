"""Certificates that are trusted, and the errors about other ones and about ports without TLS.

``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` replace the system's, as for OpenSSL and curl. Nothing else
of the environment is read for a connection (see ``client.transport``).
"""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import httpx2

from lockstep.client.errors import UnreachableError, UsageError

E = TypeVar("E", bound=BaseException)

_HOSTNAME_MISMATCH: Final = (62, 64)
"""``X509_V_ERR_HOSTNAME_MISMATCH`` and ``X509_V_ERR_IP_ADDRESS_MISMATCH``."""

_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})
"""OpenSSL's reasons for an answer that is no TLS."""
_BROKEN: Final = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
"""Ends of a connection that was accepted: so a TLS port ends one with plain HTTP."""
PROBE_SECONDS: Final = 2.0


def verification(url: str) -> ssl.SSLContext | bool:
    """The value of httpx's ``verify`` for an address.

    The certificates that the environment names, True for the system's, or False for http://.

    Raises
    ------
    UsageError
        If the environment names certificates that cannot be read.
    """
    # Certificates are read only where there is one to check: they take longer than a request on
    # loopback. No redirect is followed, so http:// never becomes https:// on the way.
    if url.lower().startswith("http://"):
        return False
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if not file and not folder:
        return True
    if folder and not Path(folder).is_dir():
        raise UsageError(
            f"SSL_CERT_DIR={folder}: is not a folder",
            next_step="set it to a folder prepared by `openssl rehash`, or unset it",
        )
    try:
        return ssl.create_default_context(cafile=file or None, capath=folder or None)
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(
            f"SSL_CERT_FILE={file}: cannot be read as certificates: {error}",
            next_step="set it to a PEM file with your CA's certificates, or unset it",
        ) from None


def tls_error(url: str, error: Exception) -> UnreachableError | None:
    """The error for the user if ``error`` is about TLS; None for any other."""
    return _certificate_error(url, error) or scheme_error(url, error)


def _certificate_error(url: str, error: BaseException) -> UnreachableError | None:
    cause = _cause(error, ssl.SSLCertVerificationError)
    if cause is None:
        return None
    if cause.verify_code in _HOSTNAME_MISMATCH:
        next_step = "use an address that the certificate is valid for"
    else:
        next_step = (
            "for a private CA, set SSL_CERT_FILE to the CA's certificates (a PEM file), or "
            "SSL_CERT_DIR to a folder of them"
        )
    return UnreachableError(
        f"{url}: the server's certificate is not accepted: {cause.verify_message}",
        next_step=next_step,
    )


def scheme_error(url: str, error: BaseException | None) -> UnreachableError | None:
    """The error for the user if the port speaks TLS and the address does not, or the reverse.

    Parameters
    ----------
    url : str
    error : exception or None
        Error of the connection; None if the answer was not one of Lockstep.
    """
    scheme, _, rest = url.partition("://")
    if scheme.lower() == "https":
        cause = _cause(error, ssl.SSLError)
        if cause is None or cause.reason not in _NO_TLS:
            return None
        return UnreachableError(
            f"{url}: this port does not use TLS", next_step=f"write http://{rest}"
        )
    broken = error is None or isinstance(error, _BROKEN)
    if not broken or not _speaks_tls(url):
        return None
    return UnreachableError(f"{url}: this port uses TLS", next_step=f"write https://{rest}")


def _speaks_tls(url: str) -> bool:
    """Return whether the port of an ``http://`` address completes a TLS handshake."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent: only the protocol is of interest
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or 80
    try:
        with (
            socket.create_connection((host, port), timeout=PROBE_SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return True
    except (OSError, ValueError):
        return False


def _cause(error: BaseException | None, kind: type[E]) -> E | None:
    """The first of the causes of an error that is of a kind; None without one."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error
