"""Certificates: which are trusted, and the error about one that is not.

``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` replace the system's, as for OpenSSL and curl. Nothing else
of the environment is read for a connection (see ``client.transport``).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lockstep.client.errors import UnreachableError, UsageError

_HOSTNAME_MISMATCH: Final = (62, 64)
"""``X509_V_ERR_HOSTNAME_MISMATCH`` and ``X509_V_ERR_IP_ADDRESS_MISMATCH``."""


def verification(url: str, environment: Mapping[str, str] = os.environ) -> ssl.SSLContext | bool:
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
    file, folder = environment.get("SSL_CERT_FILE"), environment.get("SSL_CERT_DIR")
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


def certificate_error(url: str, error: BaseException) -> UnreachableError | None:
    """The error for the user if ``error`` is about the server's certificate; None for any other."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
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
