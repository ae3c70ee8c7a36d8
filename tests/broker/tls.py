"""A TLS listener in front of a broker's unix socket, with a self-signed certificate."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 60.0


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Create a certificate for ``localhost`` and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            *subject,
            *files,
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


@contextmanager
def tls_in_front(target: Path, certificate: Path, key: Path) -> Iterator[int]:
    """Listen on a port of loopback and forward to the unix socket ``target``; yield the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    loop = asyncio.new_event_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            back_reader, back_writer = await asyncio.open_unix_connection(target)
            await asyncio.gather(_pass_on(reader, back_writer), _pass_on(back_reader, writer))

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    starting = asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    server = asyncio.run_coroutine_threadsafe(starting, loop).result(START_SECONDS)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result(START_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while received := await reader.read(65_536):
            writer.write(received)
            await writer.drain()
    writer.close()


async def _end(server: asyncio.Server) -> None:
    """Close the listener and its open connections."""
    server.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
