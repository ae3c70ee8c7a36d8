"""Requests about the caller: sign-in, sessions, password.

Not here: all other requests (``client.api``), where a token is kept (``client.config``).
"""

from __future__ import annotations

from lockstep.client.transport import Transport
from lockstep.domain.views import CallerView, Page, SessionView, SignedIn, SignInCode


class Account:
    """Part of ``client.api.Client``."""

    transport: Transport

    def sign_in(self, name: str, password: str) -> SignedIn:
        """Start a session. Its token is for another client."""
        return self.transport.post("/v1/session", SignedIn, {"name": name, "password": password})

    def accept_invitation(self, code: str, password: str) -> SignedIn:
        """Set the password with an invitation code, and start a session."""
        body = {"code": code, "password": password}
        look = "sign in with the new password: lockstep login"
        return self.transport.post("/v1/invitation", SignedIn, body, once=look)

    def create_sign_in_code(self) -> SignInCode:
        """Make a code that starts one session within a minute, with the rights of this client."""
        return self.transport.post("/v1/sign-in-codes", SignInCode)

    def sign_in_with_code(self, code: str) -> SignedIn:
        """Start a session with a code. Its token is for another client."""
        look = "a code works once: make another one"
        return self.transport.post("/v1/session/code", SignedIn, {"code": code}, once=look)

    def sign_out(self) -> None:
        """End the session whose token this client sends."""
        self.transport.send("DELETE", "/v1/session", headers={})

    def whoami(self) -> CallerView:
        """Return name, roles and credential of this client."""
        return self.transport.get("/v1/session", CallerView)

    def sessions(self) -> list[SessionView]:
        """Return the own sessions, newest first."""
        return self.transport.get("/v1/sessions", Page[SessionView]).items

    def end_session(self, session_id: str) -> None:
        """End one of the own sessions, by its id on the list."""
        self.transport.send("DELETE", f"/v1/sessions/{session_id}", headers={})

    def change_password(self, old: str, new: str) -> None:
        """Replace the own password. All other sessions end."""
        body = {"old": old, "new": new}
        look = "sign in with the new password: lockstep login"
        self.transport.send("POST", "/v1/session/password", headers={}, json=body, once=look)
