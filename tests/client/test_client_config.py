"""Selection of the server and of its token."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.client.config import Server, find_server
from lockstep.client.errors import UnreachableError, UsageError
from lockstep.client.local.home import Home, RunFile
from tests.client import examples
from tests.client.server import ReplayServer
from tests.client.terminal import CommandLine


class Places:
    """All sources of a server's address, in folders of a test."""

    def __init__(self, root: Path):
        self.home = Home(root / "home")
        self.home.create()
        self.project = root / "project" / "deep"
        self.project.mkdir(parents=True)
        self.user = root / "config.toml"

    def toml(self, text: str) -> None:
        (self.project.parent / "lockstep.toml").write_text(text)

    def local(self) -> None:
        self.home.token_file.write_text("local-token\n")
        run = RunFile(url="http://local", pid=1, started=0.0, token_file=str(self.home.token_file))
        self.home.write_run_file(run)

    def find(self, url: str | None = None, token: str | None = None, **environment: str) -> Server:
        return find_server(
            url=url,
            token=token,
            environment=environment,
            folder=self.project,
            home=self.home,
            user_config=self.user,
        )


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def test_the_more_explicit_source_wins(places: Places) -> None:
    with pytest.raises(UnreachableError, match="no server is configured"):
        places.find()
    places.local()
    assert places.find().url == "http://local"
    places.user.write_text('url = "http://user"\n')
    assert places.find().url == "http://user"
    places.toml('url = "http://project"\n')
    assert places.find().url == "http://project"
    assert places.find(LOCKSTEP_URL="http://env").url == "http://env"
    assert places.find("http://flag", LOCKSTEP_URL="http://env").url == "http://flag"


def test_a_local_service_is_found_with_its_token(places: Places) -> None:
    places.local()
    assert places.find() == Server("http://local", "local-token", str(places.home.run_file))


def test_a_token_on_the_command_line_goes_to_the_address_in_force(places: Places) -> None:
    places.toml('url = "http://project"\n')
    assert places.find(token="flag", LOCKSTEP_TOKEN="t").token == "flag"


def test_the_environments_token_is_not_sent_to_a_projects_address(
    places: Places,
) -> None:
    places.toml('url = "http://somewhere.else"\n')
    found = places.find(LOCKSTEP_TOKEN="t")
    assert (found.url, found.token) == ("http://somewhere.else", None)
    project = places.project.parent / "lockstep.toml"
    assert found.withheld == (
        f"no token is sent to http://somewhere.else (from {project}): LOCKSTEP_TOKEN is for "
        "LOCKSTEP_URL or your own addresses; set LOCKSTEP_URL, or run `lockstep config set url "
        "http://somewhere.else` if you trust this address"
    )
    places.toml('url = "http://somewhere.else"\ntoken = "theirs"\n')
    found = places.find(LOCKSTEP_TOKEN="t")
    assert (found.token, found.withheld) == ("theirs", None)


def test_the_environments_token_is_sent_to_addresses_of_both_files(
    places: Places,
) -> None:
    places.toml('url = "http://team/"\n')
    places.user.write_text('url = "http://team"\n')
    assert places.find(LOCKSTEP_TOKEN="t").token == "t"
    places.user.unlink()
    places.local()
    places.toml('url = "http://local"\n')
    assert places.find(LOCKSTEP_TOKEN="t").token == "t"


def test_the_environments_token_goes_to_the_environments_address_alone(places: Places) -> None:
    assert places.find(LOCKSTEP_TOKEN="t", LOCKSTEP_URL="http://env").token == "t"
    found = places.find("http://flag", LOCKSTEP_TOKEN="t", LOCKSTEP_URL="http://env")
    assert found.token is None
    assert found.withheld == (
        "no token is sent to http://flag (from --url): LOCKSTEP_TOKEN is for http://env "
        "(LOCKSTEP_URL); give --token"
    )


def test_the_environments_token_is_sent_to_the_users_addresses(
    places: Places,
) -> None:
    places.local()
    assert places.find(LOCKSTEP_TOKEN="t").token == "t"
    places.user.write_text('url = "http://user"\ntoken = "user-token"\n')
    assert places.find(LOCKSTEP_TOKEN="t").token == "t"
    assert places.find("http://user", LOCKSTEP_TOKEN="t").token == "t"
    assert places.find("http://user").token == "user-token"
    assert places.find("http://flag", LOCKSTEP_TOKEN="t").token is None


def test_a_project_file_does_not_get_the_token_of_another_server(places: Places) -> None:
    places.local()
    places.user.write_text('url = "http://user"\ntoken = "user-token"\n')
    places.toml('url = "http://somewhere.else"\n')
    found = places.find()
    assert found.token is None
    assert found.withheld == (
        f"no token is sent to http://somewhere.else (from "
        f"{places.project.parent / 'lockstep.toml'}): the one in "
        f"{places.user} is for http://user"
    )


def test_where_there_is_no_token_nothing_is_withheld(places: Places) -> None:
    places.toml('url = "http://somewhere.else"\n')
    assert places.find().withheld is None


def test_one_line_explains_why_no_token_was_sent(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lockstep.toml").write_text(f'url = "{server.url}"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCKSTEP_URL", raising=False)
    monkeypatch.setenv("LOCKSTEP_TOKEN", "secret")
    server.on("GET", "/v1/jobs/last", examples.succeeded())
    said = lockstep("show", "last", "-o", "name")
    assert said.code == 0
    assert [line for line in said.err.splitlines() if "no token is sent" in line] == [
        said.err.strip()
    ]
    assert all("authorization" not in asked.headers for asked in server.asked)


def test_the_same_address_from_a_later_source_has_its_token(places: Places) -> None:
    places.local()
    assert places.find("http://local/").token == "local-token"


def test_a_token_file_is_read_beside_the_file_that_names_it(places: Places) -> None:
    (places.user.parent / "mine").write_text("from-file\n")
    places.user.write_text('url = "http://user"\ntoken_file = "mine"\n')
    assert places.find().token == "from-file"


def test_a_project_file_may_not_send_a_file_from_outside_the_project(places: Places) -> None:
    places.local()
    places.toml(f'url = "http://evil"\ntoken_file = "{places.home.token_file}"\n')
    with pytest.raises(UsageError, match="outside this project"):
        places.find()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("url = ", "cannot be read as TOML"),
        ('adress = "http://x"', "unknown setting 'adress'; expected one of url, token, token_file"),
        ("url = 8470", "url: expected a text, got 8470"),
        ('url = "http://x"\ntoken_file = "gone"', "which cannot be read"),
    ],
)
def test_a_wrong_file_is_named_with_its_error(places: Places, text: str, why: str) -> None:
    places.toml(text)
    with pytest.raises(UsageError, match=f"lockstep.toml: .*{why}"):
        places.find()
