"""The api as a real process with its databases, store and token in one folder.

It can be killed and started again.

Not here: the expected answers (``test_server``).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx2

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 180.0
"""Deadline for a program that starts on a busy machine."""


class Program:
    """``python -m lockstep.api`` with its databases, store and token in one folder.

    ``module`` names another module that serves the api.
    """

    def __init__(self, home: Path, *module: str, **environment: str):
        self.home = home
        self.module = module or ("lockstep.api",)
        self.environment = {
            "PATH": os.environ["PATH"],
            "LOCKSTEP_DATABASE_URL": f"sqlite:///{home}/jobs.db",
            "LOCKSTEP_BROKER_URL": f"redis+socket://{home}/none.sock",
            "LOCKSTEP_STORE": str(home / "store"),
            "LOCKSTEP_TOKEN_FILE": str(home / "token"),
            "LOCKSTEP_LOG_FORMAT": "json",
            "LOCKSTEP_PORT": "0",
            **environment,
        }
        self.process: subprocess.Popen[str] | None = None
        self.lines: list[dict[str, object]] = []
        self.url = ""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the program until it ends by itself."""
        return subprocess.run(
            [sys.executable, "-m", "lockstep.api", *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )

    def start(self) -> None:
        """Start it, and wait until it reports its address."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", *self.module],
            cwd=ROOT,
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        listening = threading.Event()

        def read(process: subprocess.Popen[str]) -> None:
            assert process.stderr is not None
            with process.stderr as lines:
                for line in lines:
                    self.lines.append(json.loads(line) if line.startswith("{") else {"text": line})
                    if self.lines[-1].get("event") == "listening":
                        self.url = str(self.lines[-1]["url"])
                        listening.set()
            listening.set()

        self.reader = threading.Thread(target=read, args=(self.process,))
        self.reader.start()
        assert listening.wait(START_SECONDS)
        assert self.process.poll() is None, self.lines

    def end(self, number: int = signal.SIGTERM) -> float:
        """Send a signal and wait for the end; return the seconds that it took."""
        if self.process is None:
            return 0.0
        started = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(60)
        self.reader.join(60)
        self.process = None
        return time.monotonic() - started

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def client(self) -> httpx2.Client:
        return httpx2.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.token}"},
            trust_env=False,
            timeout=60,
        )
