"""Which server is meant, and which token it gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from client.config import Server, find_server
from client.errors import UnreachableError, UsageError
from client.local.home import Home, RunFile


class Places:
    """Every place that may name a server, in folders of a test."""

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
            url=url, token=token, environment=environment, folder=self.project, home=self.home, user_config=self.user
        )


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def test_the_more_explicit_place_wins(places: Places) -> None:
    with pytest.raises(UnreachableError, match="no server is known"):
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


def test_a_token_given_more_explicitly_than_the_address_is_used(places: Places) -> None:
    places.toml('url = "http://project"\n')
    assert places.find(LOCKSTEP_TOKEN="t").token == "t"
    assert places.find(token="flag", LOCKSTEP_TOKEN="t").token == "flag"


def test_a_project_file_does_not_get_the_token_of_another_server(places: Places) -> None:
    places.local()
    places.user.write_text('url = "http://user"\ntoken = "user-token"\n')
    places.toml('url = "http://somewhere.else"\n')
    assert places.find().token is None


def test_the_same_address_from_a_later_place_brings_its_token(places: Places) -> None:
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
        ('adress = "http://x"', "there is no setting 'adress'; known: url, token, token_file"),
        ("url = 8470", "url is a text, got 8470"),
        ('url = "http://x"\ntoken_file = "gone"', "which cannot be read"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(places: Places, text: str, why: str) -> None:
    places.toml(text)
    with pytest.raises(UsageError, match=f"lockstep.toml: .*{why}"):
        places.find()
