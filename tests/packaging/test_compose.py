"""Names in Dockerfile and docker-compose.yml exist: modules, settings, files, targets, profiles.

Nothing is built here.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic_settings import BaseSettings
from ruamel.yaml import YAML

from lockstep.domain.life.grace import AGENT_END_SECONDS_MAX
from lockstep.storage.db import migrate
from lockstep.storage.db.settings import default_series_url
from tests.packaging.dockerfile import ROOT, inherited, stages

PROGRAMS = ("lockstep.api", "lockstep.scheduler", "lockstep.worker")


def _last(stage: str, keyword: str) -> str:
    return [rest for found, rest in inherited(stage) if found == keyword][-1]


def _compose() -> dict[str, Any]:
    return YAML(typ="safe").load(ROOT / "docker-compose.yml")


SERVICES: dict[str, dict[str, Any]] = _compose()["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]
RUNTIME_STAGES = ("server", "scheduler", "node")


def _program(command: list[str]) -> str:
    assert command[:2] == ["python", "-m"], command
    return command[2]


def _settings(program: str) -> type[BaseSettings]:
    """Return the class of a program's settings, the only one in its module."""
    module = import_module(f"{program}.settings")
    (found,) = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and issubclass(value, BaseSettings)
        and not value.__name__.startswith("_")
    ]
    return found


def _fields(program: str) -> set[str]:
    settings = _settings(program)
    assert issubclass(settings, BaseSettings)
    assert settings.model_config["env_prefix"] == "LOCKSTEP_"
    return {f"LOCKSTEP_{name.upper()}" for name in settings.model_fields}


def _environment(stage: str) -> Iterator[tuple[str, str]]:
    for keyword, rest in inherited(stage):
        if keyword == "ENV":
            for word in shlex.split(rest):
                name, _, value = word.partition("=")
                yield name, value


def test_the_programs_of_the_design_are_all_started() -> None:
    assert {"postgres", "redis", "migrate", "api", "scheduler", "agent-cpu", "agent-gpu"} == set(
        SERVICES
    )


@pytest.mark.parametrize("name", OURS)
def test_a_services_command_is_a_program_of_ours(name: str) -> None:
    program = _program(SERVICES[name]["command"])
    assert program in PROGRAMS
    assert importlib.util.find_spec(f"{program}.__main__") is not None


@pytest.mark.parametrize("stage", RUNTIME_STAGES)
def test_an_images_command_is_a_program_of_ours(stage: str) -> None:
    assert (
        importlib.util.find_spec(f"{_program(json.loads(_last(stage, 'CMD')))}.__main__")
        is not None
    )


@pytest.mark.parametrize("name", OURS)
def test_every_variable_of_a_service_is_a_setting_of_its_program(name: str) -> None:
    variables = {
        variable for variable in SERVICES[name]["environment"] if variable.startswith("LOCKSTEP_")
    }
    assert variables
    assert variables <= _fields(_program(SERVICES[name]["command"]))


@pytest.mark.parametrize("stage", RUNTIME_STAGES)
def test_variables_of_an_image_are_settings_of_its_programs(stage: str) -> None:
    own = _program(json.loads(_last(stage, "CMD")))
    # The scheduler uses the api's image with another command, so the image has the api's variables,
    # too.
    known = _fields(own) | (_fields("lockstep.api") if stage == "scheduler" else set())
    assert {name for name, _ in _environment(stage) if name.startswith("LOCKSTEP_")} <= known


@pytest.mark.parametrize("name", OURS)
def test_a_services_settings_are_accepted_by_its_program(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = SERVICES[name]
    values = dict(_environment(service["build"]["target"])) | service["environment"]
    for variable, value in values.items():
        filled = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value))
        monkeypatch.setenv(variable, re.sub(r"\$\{\w+:\?[^}]*\}", "secret", filled))
    settings = _settings(_program(service["command"]))()
    assert "secret" in settings.database_url


@pytest.mark.parametrize("name", OURS)
def test_a_service_is_built_from_a_stage_that_exists(name: str) -> None:
    assert SERVICES[name]["build"]["target"] in stages()


def test_every_copied_path_exists_and_is_not_ignored() -> None:
    ignored = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    copied = [
        source
        for _, instructions in stages().values()
        for keyword, rest in instructions
        if keyword == "COPY" and not rest.startswith("--from")
        for source in shlex.split(rest.removeprefix("--chown=lockstep "))[:-1]
    ]
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert not any(fnmatch(source.rstrip("/"), pattern) for pattern in ignored), source


def test_the_image_has_every_package_that_the_wheel_has() -> None:
    packages = re.search(r"packages = \[([^\]]+)\]", (ROOT / "pyproject.toml").read_text())
    assert packages
    copied = {
        rest.split()[0].rstrip("/") for keyword, rest in stages()["build"][1] if keyword == "COPY"
    }
    assert set(re.findall(r'"(\w+)"', packages[1])) <= copied


@pytest.mark.parametrize("stage", ["server", "node"])
def test_our_wheel_is_installed_after_all_that_it_needs(stage: str) -> None:
    """A changed line of ours must not invalidate the layers of torch and other packages."""
    instructions = inherited(stage)
    wheel = next(
        number for number, (_, rest) in enumerate(instructions) if "lockstep_jobs-*.whl" in rest
    )
    others = [
        number
        for number, (_, rest) in enumerate(instructions)
        if "pip install --constraint" in rest
    ]
    assert others
    assert max(others) < wheel
    assert "--no-deps" in instructions[wheel][1]
    before = [rest for keyword, rest in instructions[:wheel] if keyword in {"COPY", "ADD"}]
    assert not any("--from=build" in rest for rest in before)


@pytest.mark.parametrize("name", ["agent-cpu", "agent-gpu"])
def test_an_agents_container_is_stopped_after_the_longest_end_of_the_agent(name: str) -> None:
    assert SERVICES[name]["stop_grace_period"] == f"{AGENT_END_SECONDS_MAX:.0f}s"


def test_a_build_needs_no_frontend_from_a_registry() -> None:
    assert "syntax=" not in (ROOT / "Dockerfile").read_text()


def test_the_documented_start_waits_and_names_the_profile_once() -> None:
    for file in ("docker-compose.yml", "docs/containers.md"):
        text = (ROOT / file).read_text()
        assert "docker compose up -d --build --wait" in text, file
        assert "COMPOSE_PROFILES=cpu" in text, file
        assert "--profile" not in text, file


def test_the_database_role_comes_from_a_script_and_is_no_superuser() -> None:
    postgres = SERVICES["postgres"]
    assert not {"POSTGRES_USER", "POSTGRES_DB"} & set(postgres["environment"])
    assert (
        "./docker/postgres.sql:/docker-entrypoint-initdb.d/lockstep.sql:ro" in postgres["volumes"]
    )


@pytest.mark.parametrize("stage", RUNTIME_STAGES)
def test_an_image_has_an_unprivileged_user_and_a_health_check(
    stage: str,
) -> None:
    assert _last(stage, "USER") == "lockstep"
    command = json.loads(_last(stage, "HEALTHCHECK").partition("CMD ")[2])
    copies = [rest.split() for keyword, rest in inherited(stage) if keyword == "COPY"]
    (script,) = [word for word in command if word.endswith(".py")]
    assert any(
        "docker/health.py" in sources and script in {target, f"{target}health.py"}
        for *sources, target in copies
    )
    assert command[-1] in {"api", "scheduler", "agent"}


def test_the_migration_service_makes_a_database_that_needs_no_more(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    environment = {
        "PATH": "/usr/bin:/bin",
        "LOCKSTEP_DATABASE_URL": url,
        "LOCKSTEP_BROKER_URL": "redis://localhost:1/0",
        "LOCKSTEP_STORE": str(tmp_path / "store"),
    }
    argv = [sys.executable, *SERVICES["migrate"]["command"][1:]]
    done = subprocess.run(
        argv, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not any(migrate.pending(url, default_series_url(url)))


def test_the_agent_has_two_profiles_and_one_requests_gpus() -> None:
    assert {
        name: service["profiles"] for name, service in SERVICES.items() if "profiles" in service
    } == {
        "agent-cpu": ["cpu"],
        "agent-gpu": ["gpu"],
    }
    (device,) = SERVICES["agent-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]
    assert "deploy" not in SERVICES["agent-cpu"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_only_for_services_with_a_health_check(name: str) -> None:
    for other, wait in SERVICES[name].get("depends_on", {}).items():
        if wait["condition"] == "service_healthy":
            assert "test" in SERVICES[other]["healthcheck"]
        else:
            assert wait["condition"] == "service_completed_successfully"
            assert "restart" not in SERVICES[other]


@pytest.mark.parametrize("name", SERVICES)
def test_every_volume_is_declared_and_contains_the_configured_paths(name: str) -> None:
    volumes = [volume.split(":") for volume in SERVICES[name].get("volumes", [])]
    files = {source for source, *_ in volumes if source.startswith("./")}
    assert all((ROOT / file).is_file() for file in files)
    mounts = {source: words[0] for source, *words in volumes if source not in files}
    assert set(mounts) <= set(_compose()["volumes"])
    for variable, value in SERVICES[name].get("environment", {}).items():
        if str(value).startswith("/"):
            assert any(Path(value).is_relative_to(mount) for mount in mounts.values()), variable


def test_nothing_is_reachable_from_other_hosts_and_no_password_is_written_down() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    text = (ROOT / "docker-compose.yml").read_text()
    assert re.findall(r"PASSWORD\S*: (?!\$\{)", text) == []


def test_logs_rotate_and_hardware_is_chosen_by_variables() -> None:
    for service in SERVICES.values():
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}
    gpu = SERVICES["agent-gpu"]
    assert gpu["shm_size"] == "${SHM_SIZE:-8gb}"
    assert set(gpu["ulimits"]) == {"memlock", "stack"}
    (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert device["device_ids"] == ["${GPU_IDS:-all}"]
    assert "ulimits" not in SERVICES["agent-cpu"]  # A rootless daemon may not raise them.


def test_every_variable_of_compose_is_documented() -> None:
    page = (ROOT / "docs/containers.md").read_text()
    named = set(re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text()))
    passed = {name for name, value in _compose()["x-arguments"].items() if value is None}
    assert {name for name in named | passed if f"`{name}`" not in page} == set()


def test_the_file_with_the_password_is_made_for_its_owner_alone() -> None:
    for file in ("docker-compose.yml", "docs/containers.md"):
        (line,) = re.findall(r".*POSTGRES_PASSWORD=\$\(openssl.*", (ROOT / file).read_text())
        assert "test -e .env || (umask 077 && echo" in line, file


def test_the_command_in_the_apis_container_finds_its_server() -> None:
    config = tomllib.loads((ROOT / "docker/client.toml").read_text())
    environment = dict(_environment("server"))
    assert config["url"] == f"http://127.0.0.1:{environment['LOCKSTEP_PORT']}"
    assert config["token_file"] == SERVICES["api"]["environment"]["LOCKSTEP_TOKEN_FILE"]
    copied = [rest.split() for keyword, rest in inherited("server") if keyword == "COPY"]
    target = "/home/lockstep/.config/lockstep/config.toml"
    assert ["--chown=lockstep", "docker/client.toml", target] in copied
