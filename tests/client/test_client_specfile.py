"""Specs from YAML: errors have the file and the line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from lockstep.client.errors import SpecRefusedError, UsageError
from lockstep.client.files import specfile
from lockstep.domain.views import FieldProblem
from tests.client.examples import YAML


def refusal(text: str, *settings: str) -> str:
    with pytest.raises(SpecRefusedError) as caught:
        specfile.read("-", settings, io.StringIO(text)).check()
    return caught.value.message


def test_a_file_is_sent_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(YAML)
    spec = specfile.read(str(tmp_path / "job.yaml"), [], io.StringIO())
    assert spec.document == {
        "name": "tiny",
        "kind": "train",
        "resources": {"gpus": 2},
        "train": {"task": "causal_lm", "batch": {"size": 64, "micro_size": 8}, "steps": 200},
    }
    assert spec.check().world_size() == 2


def test_json_is_read_too() -> None:
    text = '{"name": "j", "kind": "script", "script": {"command": ["true"]}}'
    assert specfile.read("-", [], io.StringIO(text)).check().name == "j"


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        (YAML.replace("steps:", "stepss:"), 7, "train.stepss", "did you mean steps"),
        (YAML.replace("200", "-3"), 7, "train.steps", "-3"),
        (YAML.replace("causal_lm", "causal"), 5, "train.task", "causal_lm"),
        (YAML.replace("size: 64", "size: 1"), 6, "train.batch.size", "2 ranks"),
        (YAML + "script: {command: [x]}\n", 8, "script", "train"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(text: str, line: int, field: str, words: str) -> None:
    first = refusal(text).splitlines()[0]
    assert first.startswith(f"stdin:{line}: {field}: ")
    assert words in first


def test_every_wrong_value_has_its_own_line() -> None:
    lines = refusal(YAML.replace("200", "-3").replace("tiny", "Tiny!")).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["stdin:1:", "stdin:7:"]


def test_a_missing_value_is_placed_where_it_should_have_been() -> None:
    assert refusal(YAML.replace("  task: causal_lm\n", "")).startswith("stdin:4: train.task: ")
    assert refusal(YAML.replace("name: tiny\n", "")).startswith("stdin: name: ")


def test_a_pointer_of_the_servers_answer_finds_its_line() -> None:
    spec = specfile.read("-", [], io.StringIO(YAML))
    problem = FieldProblem(pointer="/resources/gpus", message="at most 1", next_step="ask for less")
    assert spec.explain(problem) == "stdin:3: resources.gpus: at most 1 (ask for less)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\n", "stdin:2: not valid YAML"),
        ("a: 1\nb: 2\na: 3\n", "stdin:3: not valid YAML"),
        ("a: 1\n---\nb: 2\n", "stdin:2: not valid YAML"),
        ("a: !!python/name:os.system x\n", "stdin:1: not valid YAML"),
        ("[" * 1500, "stdin: not valid YAML"),
        ("a:\n  b: 2026-01-01\n", "stdin:2: a.b: 2026-01-01 is not"),
        ("a: 1\n2: 3\n", "stdin:2: 2: the name 2 is not"),
        ("a: .nan\n", "stdin:1: a: nan is not"),
        ("- 1\n", "stdin: expected a job spec: an object"),
        ("", "stdin: expected a job spec: an object"),
    ],
)
def test_a_file_that_is_no_spec_is_refused_with_its_line(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


def test_a_few_lines_of_aliases_cannot_become_billions_of_values() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 12)]
    assert "more than 20,000 values" in refusal("\n".join(lines))


def test_set_changes_and_adds_values_with_their_yaml_type() -> None:
    settings = [
        "train.steps=5",
        "train.optimizer={name: sgd, lr: 1e-2}",
        "labels.team=blue",
        "env.EMPTY=",
    ]
    document = specfile.read("-", settings, io.StringIO(YAML)).document
    assert document["train"]["steps"] == 5
    assert document["train"]["optimizer"] == {"name": "sgd", "lr": 0.01}
    assert document["labels"] == {"team": "blue"}
    assert document["env"] == {"EMPTY": ""}


def test_set_reaches_into_lists() -> None:
    text = "name: s\nkind: script\nscript: {command: [train.py, --lr, '1']}\n"
    assert (
        specfile.read("-", ["script.command.2='2'"], io.StringIO(text)).document["script"][
            "command"
        ][2]
        == "2"
    )
    with pytest.raises(UsageError, match=r"script\.command has no entry"):
        specfile.read("-", ["script.command.3=x"], io.StringIO(text))


def test_a_wrong_value_from_set_is_named_as_such() -> None:
    assert refusal(YAML, "train.steps=0").startswith("--set train.steps=0: train.steps: ")


@pytest.mark.parametrize("setting", ["train.steps", "=5", "train..steps=5"])
def test_a_set_of_another_form_is_a_usage_error(setting: str) -> None:
    with pytest.raises(UsageError, match=r"expected name\.of\.field=value"):
        specfile.read("-", [setting], io.StringIO(YAML))


def test_an_unreadable_file_is_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        specfile.read(str(tmp_path / "gone.yaml"), [], io.StringIO())
    (tmp_path / "latin.yaml").write_bytes("name: ä".encode("latin-1"))
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        specfile.read(str(tmp_path / "latin.yaml"), [], io.StringIO())
    (tmp_path / "big.yaml").write_text("#" * 300_000)
    with pytest.raises(UsageError, match="larger than 256 KiB"):
        specfile.read(str(tmp_path / "big.yaml"), [], io.StringIO())
