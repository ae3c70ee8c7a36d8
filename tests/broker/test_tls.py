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


def test_a_self_signed_certificate_is_refused_without_options(port: int) -> None:
    assert not answers(f"rediss://localhost:{port}/0", seconds_max=10.0)


def test_a_certificate_of_a_named_authority_is_accepted(port: int, certificate: Path) -> None:
    assert answers(f"rediss://localhost:{port}/0?ssl_ca_certs={certificate}", seconds_max=10.0)


def test_a_certificate_for_another_name_is_refused(port: int, certificate: Path) -> None:
    assert not answers(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate}", seconds_max=10.0)


def test_verification_can_be_turned_off_by_name(port: int) -> None:
    assert answers(f"rediss://localhost:{port}/0?ssl_cert_reqs=none", seconds_max=10.0)


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


@pytest.mark.parametrize("value", ["yes", ""])
def test_an_unknown_requirement_for_certificates_is_refused(value: str) -> None:
    with pytest.raises(
        ValidationError, match="ssl_cert_reqs: expected required, optional or none, got"
    ):
        BrokerSettings(broker_url=f"rediss://:secret@h:6379/0?ssl_cert_reqs={value}")


def test_options_of_tls_without_tls_are_refused() -> None:
    with pytest.raises(ValidationError, match="ssl_ca_certs needs rediss://"):
        BrokerSettings(broker_url="redis://h:6379/0?ssl_ca_certs=/ca.pem")
