"""TLS with a private CA: a real server and real certificates, which openssl makes."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.cli.app import run
from lockstep.client.api import Client
from lockstep.client.errors import UnreachableError
from tests.client import examples
from tests.client.server import ReplayServer
from tests.client.terminal import CommandLine

CA = ("/CN=Test CA", "basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create ``ca.pem`` and, issued by it for 127.0.0.1, ``server.pem`` with ``server.key``."""
    made = tmp_path_factory.mktemp("pki")
    subject, *extensions = CA
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    added = [word for extension in extensions for word in ("-addext", extension)]
    openssl(
        "req",
        "-x509",
        *key,
        "-keyout",
        f"{made}/ca.key",
        "-out",
        f"{made}/ca.pem",
        "-subj",
        subject,
        *added,
    )
    issued = [
        "-CA",
        f"{made}/ca.pem",
        "-CAkey",
        f"{made}/ca.key",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]
    issued += [
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-addext",
        "authorityKeyIdentifier=keyid",
    ]
    named = ["-keyout", f"{made}/server.key", "-out", f"{made}/server.pem", "-subj", "/CN=server"]
    openssl("req", "-x509", *key, *named, *issued)
    (made / "folder").mkdir()
    (made / "folder" / "ca.pem").write_bytes((made / "ca.pem").read_bytes())
    openssl("rehash", f"{made}/folder")
    return made


@pytest.fixture
def secure(pki: Path) -> Iterator[ReplayServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server.pem", pki / "server.key")
    with ReplayServer(tls=context) as running:
        running.on("GET", "/v1/jobs/last", examples.succeeded())
        running.on("GET", "/livez", examples.succeeded())
        yield running


@pytest.fixture
def command(
    lockstep: CommandLine, secure: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    monkeypatch.setenv("LOCKSTEP_URL", secure.url)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return lockstep


@pytest.mark.parametrize(
    ("name", "value"), [("SSL_CERT_FILE", "ca.pem"), ("SSL_CERT_DIR", "folder")]
)
def test_a_private_ca_is_trusted_where_the_environment_names_it(
    command: CommandLine, pki: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, str(pki / value))
    assert command("show", "last", "-o", "name") == (0, f"{examples.ID}\n", "")
    assert "is not accepted" not in command("doctor").out


def test_an_unknown_ca_is_refused_at_once_with_advice_about_certificates(
    command: CommandLine, secure: ReplayServer
) -> None:
    said = command("show", "last")
    assert said.code == 5
    assert (
        f"{secure.url}: the server's certificate is not accepted: unable to get local issuer "
        f"certificate"
    ) in said.err
    assert "SSL_CERT_FILE" in said.err
    assert "lockstep up" not in said.err
    assert "retrying" not in said.err
    said = command("doctor")
    assert "SSL_CERT_FILE" in said.out
    assert "lockstep up" not in said.out
    assert not secure.asked


def test_a_certificate_for_another_name_is_refused(
    command: CommandLine, secure: ReplayServer, pki: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pki / "ca.pem"))
    said = command("show", "last", "--url", secure.url.replace("127.0.0.1", "localhost"))
    assert said.code == 5
    assert "certificate is not valid for 'localhost'" in said.err
    assert "use an address that the certificate is valid for" in said.err


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (
            "SSL_CERT_FILE",
            "/nowhere/ca.pem",
            "SSL_CERT_FILE=/nowhere/ca.pem: cannot be read as certificates",
        ),
        ("SSL_CERT_FILE", __file__, "cannot be read as certificates"),
        ("SSL_CERT_DIR", "/nowhere", "SSL_CERT_DIR=/nowhere: is not a folder"),
    ],
)
def test_certificates_that_cannot_be_read_are_named(
    command: CommandLine, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    said = command("show", "last")
    assert said.code == 2
    assert says in said.err


def test_the_environments_certificates_are_not_read_for_plain_http(
    lockstep: CommandLine, server: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    server.on("GET", "/v1/jobs/last", examples.succeeded())
    assert run(["show", "last", "-o", "name"]) == 0


def test_an_address_with_the_wrong_scheme_gets_the_right_one(
    lockstep: CommandLine, server: ReplayServer, secure: ReplayServer
) -> None:
    for wrong, says in (
        (server.url.replace("http:", "https:"), "this port does not use TLS"),
        (secure.url.replace("https:", "http:"), "this port uses TLS"),
    ):
        right = {"https": "http", "http": "https"}[wrong.partition(":")[0]] + wrong[
            wrong.index(":") :
        ]
        said = lockstep("ps", "--url", wrong)
        assert (said.code, said.err) == (5, f"lockstep: {wrong}: {says}\n          write {right}\n")
        assert f"write {right}" in lockstep("doctor", "--url", wrong).out
    assert not secure.asked


def test_a_plain_http_refusal_of_a_tls_port_is_recognized(pki: Path) -> None:
    """nginx and Go's server answer plain HTTP on such a port with 400."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server.pem", pki / "server.key")
    response = b"HTTP/1.0 400 Bad Request\r\nContent-Length: 3\r\n\r\nno\n"

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                if connection.recv(1, socket.MSG_PEEK) == b"G":
                    connection.recv(4096)
                    connection.sendall(response)
                else:
                    context.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        with Client(url) as client, pytest.raises(UnreachableError, match="this port uses TLS"):
            client.job("last")
        thread.join()
