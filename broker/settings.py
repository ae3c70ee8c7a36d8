"""Settings of the broker, shared by all programs that use it.

Programs inherit from ``BrokerSettings`` and read it once, at their start.

Not here: the databases (``storage.db.settings``).
"""

from __future__ import annotations

from urllib.parse import parse_qsl

from pydantic import field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

TLS_OPTIONS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_keyfile",
    "ssl_password",
)
CERTIFICATES = ("required", "optional", "none", "CERT_REQUIRED", "CERT_OPTIONAL", "CERT_NONE")
"""Values of ``ssl_cert_reqs``."""
SCHEMES = ("redis", "rediss", "redis+socket")


class BrokerSettings(BaseSettings):
    """``LOCKSTEP_BROKER_URL``."""

    model_config = SettingsConfigDict(
        env_prefix="LOCKSTEP_", frozen=True, extra="ignore", use_attribute_docstrings=True
    )

    broker_url: str
    """``redis://host:6379/0``, ``rediss://…``, or ``redis+socket:///absolute/broker.sock``.

    ``rediss://`` verifies the certificate and its name: with the system's authorities, or with
    those in ``?ssl_ca_certs=/path``. ``?ssl_cert_reqs=none`` turns it off.
    """

    @field_validator("broker_url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        scheme, separator, rest = value.partition("://")
        if not separator or scheme not in SCHEMES:
            # `value` may hold a password, so only its scheme is repeated.
            shown = f"{scheme}://" if separator else "a URL without ://"
            raise ValueError(
                f"the broker's URL must start with {' or '.join(f'{one}://' for one in SCHEMES)}, "
                f"not {shown}"
            )
        if scheme == "redis+socket" and not rest.startswith("/"):
            raise ValueError(
                "a socket's URL needs an absolute path, with three slashes: "
                "redis+socket:///absolute/path"
            )
        _check_tls(scheme, rest)
        return value


def _check_tls(scheme: str, rest: str) -> None:
    """Refuse options that would raise in every program, or that have no effect."""
    options = dict(parse_qsl(rest.partition("?")[2], keep_blank_values=True))
    of_tls = sorted(name for name in options if name.startswith("ssl_"))
    if of_tls and scheme != "rediss":
        raise ValueError(f"{of_tls[0]} needs rediss://, got {scheme}://")
    unknown = [name for name in of_tls if name not in TLS_OPTIONS]
    if unknown:
        raise ValueError(
            f"{unknown[0]} is not an option of a rediss:// URL; expected one of "
            f"{', '.join(TLS_OPTIONS)}"
        )
    required = options.get("ssl_cert_reqs", "required")
    if required not in CERTIFICATES:
        raise ValueError(f"ssl_cert_reqs: expected required, optional or none, got {required!r}")
