"""``rediss://``: a broker whose certificate is not trusted gets no message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from lockstep.broker.messages import WakeScheduler
from lockstep.broker.probe import answers
from lockstep.broker.publisher import Publisher
from lockstep.broker.settings import BrokerSettings
from tests.broker.test_consuming import Listener
from tests.broker.tls import self_signed, tls_in_front
from tests.harness.processes import Broker, running_broker, until


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def certificate(broker: Broker) -> Path:
    return self_signed(broker.folder)[0]


@pytest.fixture(scope="module")
def port(broker: Broker, certificate: Path) -> Iterator[int]:
    with tls_in_front(broker.socket, certificate, certificate.with_name("key.pem")) as port:
        yield port


@pytest.mark.parametrize(
    ("host", "options", "accepted"),
    [
        pytest.param("localhost", "", False, id="self-signed"),
        pytest.param("localhost", "?ssl_ca_certs={certificate}", True, id="named-authority"),
        pytest.param("127.0.0.1", "?ssl_ca_certs={certificate}", False, id="another-name"),
        pytest.param("localhost", "?ssl_cert_reqs=none", True, id="turned-off-by-name"),
    ],
)
def test_a_certificate_is_verified(
    port: int, certificate: Path, host: str, options: str, accepted: bool
) -> None:
    url = f"rediss://{host}:{port}/0{options.format(certificate=certificate)}"
    assert answers(url, seconds_max=10.0) is accepted


def test_programs_send_and_receive_only_over_a_verified_connection(
    port: int, certificate: Path, broker: Broker, tmp_path: Path
) -> None:
    with broker.client() as client:
        refused = Publisher(f"rediss://localhost:{port}/0")
        refused.publish(WakeScheduler())
        refused.close()
        assert client.llen("lockstep:control") == 0
        url = f"rediss://localhost:{port}/0?ssl_ca_certs={certificate}"
        publisher, listener = Publisher(url), Listener(url, tmp_path / "out")
        try:
            publisher.publish(WakeScheduler())
            until(lambda: listener.lines("received") > 0, 60, "a notification over TLS")
        finally:
            publisher.close()
            listener.process.kill()
            listener.process.wait()


UNKNOWN = "ssl_cert_reqs: expected required, optional or none, got"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("rediss://:secret@h:6379/0?ssl_cert_reqs=yes", UNKNOWN),
        ("rediss://:secret@h:6379/0?ssl_cert_reqs=", UNKNOWN),
        ("redis://h:6379/0?ssl_ca_certs=/ca.pem", "ssl_ca_certs needs rediss://"),
    ],
)
def test_wrong_options_of_tls_are_refused(url: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        BrokerSettings(broker_url=url)
