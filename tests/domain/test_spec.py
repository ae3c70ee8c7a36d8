"""Valid and invalid job specs: bounds of every field, and the example of the interface."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.reading import read_spec
from tests.domain.documents import REMOVE, changed, script_document, train_document

BIG = 10**30


# (pointer, values just inside, values just outside). Written by hand from the interface, not from
# the model.
def _at(ref: str) -> dict[str, str]:
    return {"git": "https://example.org/x", "ref": ref}


BOUNDS: list[tuple[str, list[Any], list[Any]]] = [
    (
        "/name",
        ["a", "a" * 63, "a.b_c-d", "0"],
        ["", "A", "a" * 64, "-a", "a-", "a b", "a\n", "ä", 5, None],
    ),
    ("/project", ["default", "x1"], ["", "No", None]),
    ("/kind", ["train"], ["Train", "", None, 1]),
    ("/resources/gpus", [1, 64], [0, -1, 4097, BIG, 1.5, "x", None, True, [1]]),
    (
        "/resources/gpus",
        [{"min": 1, "max": 64}],
        [{"min": 0, "max": 1}, {"min": 2, "max": 1}, {"max": 2}, {"min": 1}],
    ),
    ("/resources/gpu_type", ["cpu", "NVIDIA H200", None, "x" * 100], ["", "x" * 101, 3]),
    ("/resources/nodes", [None, 1], [0, 1025, True]),
    (
        "/resources/needs",
        [[], ["data:x"], [f"{n:02}" for n in range(64)]],
        [None, "data:x", ["A"], [1], ["a"] * 65],
    ),
    ("/train/batch/size", [1, 2**31], [0, -1, 2**31 + 1, 1.5, "many", None, False]),
    ("/train/batch/micro_size", [1, 2**31, "auto"], [0, -8, 2**31 + 1, 0.5, "Auto", None, True]),
    ("/train/steps", [1, 10**9], [0, -1, 10**9 + 1, 2.5, True]),
    (
        "/train/optimizer/lr",
        [1e-12, 100],
        [0, -1e-3, 101, float("nan"), float("inf"), "fast", None, True],
    ),
    ("/train/schedule/name", ["constant", "cosine", "linear"], ["step", None]),
    ("/train/schedule/warmup_steps", [0, 10**9], [-1, 10**9 + 1, 0.5]),
    ("/train/schedule/min_lr", [0, 3e-4], [-1e-9, 3.1e-4, float("nan")]),
    ("/train/clip_grad_norm", [None, 1e-9, 1e9], [0, -1, float("inf"), True]),
    ("/train/precision", ["fp32", "bf16", "fp16"], ["float32", "fp64", None]),
    (
        "/train/strategy/name",
        ["ddp", "manual", "data_parallel", "zero1", "fsdp"],
        ["DDP", None, "local_sgd", "diloco"],
    ),
    ("/train/parallel/tensor", [None, 1], [0, 4097, True]),
    ("/train/parallel/pipeline", [None, 1], [0, 4097, True]),
    ("/train/strategy/bucket_cap_mb", [None, 0.5, 4096], [0, 4097, True]),
    ("/train/strategy/gradient_as_bucket_view", [True, False, None], [2]),
    ("/train/strategy/static_graph", [True, False], [None, 2]),
    ("/train/strategy/compression", ["none", "fp16", "bf16"], [None, "gzip", "powersgd"]),
    (
        "/train/strategy",
        [
            {
                "name": "zero1",
                "bucket_cap_mb": 10,
                "gradient_as_bucket_view": True,
                "static_graph": True,
            },
            {
                "name": "manual",
                "gradient_as_bucket_view": False,
                "static_graph": False,
                "compression": "none",
            },
            {"compression": "powersgd", "powersgd_rank": 1024, "powersgd_start_step": 0},
            {"name": "local_sgd", "sync_every_steps": 1},
            {"name": "diloco", "sync_every_steps": 500, "outer_lr": 0.7, "outer_momentum": 0},
            {"name": "fsdp", "shard": 2, "reduce": "each_micro_batch"},
        ],
        [
            {"name": "manual", "bucket_cap_mb": 10},
            {"name": "data_parallel", "gradient_as_bucket_view": True},
            {"name": "fsdp", "static_graph": True},
            {"name": "zero1", "compression": "fp16"},
            {"powersgd_rank": 2},
            {"compression": "bf16", "powersgd_start_step": 2},
            {"compression": "powersgd", "powersgd_rank": 0},
            {"compression": "powersgd", "powersgd_start_step": -1},
            {"sync_every_steps": 4},
            {"name": "local_sgd", "sync_every_steps": 0},
            {"name": "local_sgd", "sync_every_steps": 4, "outer_lr": 0.7},
            {"name": "diloco", "outer_lr": 0.7},
            {"name": "diloco", "sync_every_steps": 4, "outer_momentum": 1},
            {"name": "fsdp", "outer_momentum": 0.9},
            {"name": "fsdp", "outer_momentum": 0},
            {"name": "fsdp", "shard": 1},
            {"name": "zero1", "shard": 2},
            {"name": "ddp", "reduce": "each_micro_batch"},
            {"name": "fsdp", "reduce": "each_step"},
        ],
    ),
    ("/train/checkpoint/every_steps", [None, 1, 10**9], [0, 10**9 + 1]),
    ("/train/checkpoint/keep_last", [1, 1000], [0, 1001, None]),
    ("/train/checkpoint/keep_best", [None, "train/loss"], ["", "x" * 201, "eval/loss"]),
    ("/train/checkpoint/background", [True, False], [None, 2]),
    ("/train/eval/every_steps", [None, 1, 10**9], [0, 10**9 + 1]),
    ("/train/loader/workers", [0, 64], [-1, 65, None, True]),
    ("/train/log_every_steps", [1, 10**6], [0, 10**6 + 1]),
    ("/train/seed", [0, 2**63 - 1], [-1, 2**63, 0.5]),
    (
        "/train/init_from",
        [None, "x" * 1000, "job:0192-ab", "job:last@20", "job:gpt@best"],
        [
            "",
            "x" * 1001,
            "job:",
            "job:a@",
            "job:a@worst",
            "job:a b",
            "job:a@1@2",
            "job:a@-1",
            "a\0b",
        ],
    ),
    ("/train/deterministic", [True, False], ["perhaps", None, 2]),
    ("/train/compile", [True, False], [None]),
    ("/train/activation_checkpointing", [True, False], [None]),
    ("/train/memory_headroom", [0, 0.89], [-0.01, 0.9, 1, True]),
    ("/train/task", ["causal_lm", "image_classification"], ["", "causal", "x" * 501, None]),
    (
        "/code",
        [None, {"upload": "0" * 64}, {"path": "/data"}],
        [{}, {"upload": "0" * 63}, "x", [], {"path": "data"}],
    ),
    ("/code", [], [{"upload": "0" * 64, "git": "https://example.org/x"}]),
    (
        "/code/git",
        [
            "https://example.org/x.git",
            "ssh://git@example.org:22/x",
            "git@example.org:a/x.git",
            "file:///srv/x",
        ],
        [
            "",
            "x",
            "/srv/x",
            "--upload-pack=x",
            "ext::sh -c x",
            "ssh://-oProxyCommand=x/y",
            "https://",
            "git@h:-x",
        ],
    ),
    (
        "/code/git",
        ["https://ada@example.org/x"],
        ["https://ada:password@example.org/x", "https://e.org/a\0b"],
    ),
    (
        "/code",
        [_at(ref) for ref in ("HEAD", "main", "feature/a-b", "v1.2", "0" * 40)],
        [_at(ref) for ref in ("", "-x", "a b", "HEAD~1", "a:b", "x" * 501)],
    ),
    (
        "/env",
        [{}, {"A": ""}, {"_a1": "x" * 32_768}],
        [{"1A": ""}, {"A": 1}, {"A": "x" * 32_769}, {"A-B": ""}, [], None],
    ),
    ("/secrets", [[], ["TOKEN"]], [["a b"], "TOKEN", None, ["X"] * 101]),
    ("/retry/max", [0, 100], [-1, 101, None, True]),
    ("/retry/total", [None, 1, 1_000], [0, 1_001, 1.5, True]),
    ("/retry/on_exit", [[], [1, 255]], [None, [0], [256], ["x"], 75]),
    ("/retry/on_error", [True], [None, "x"]),
    ("/stop_grace_seconds", [None, 0, 300], [-1, 301, True]),
    ("/timeout_seconds", [None, 0.1, 31_622_400], [0, -1, 31_622_401, float("nan"), True]),
    ("/priority", [0, 100], [-1, 101, 50.5, None]),
    (
        "/labels",
        [{}, {"team": "blue"}, {"x" * 63: "y" * 255}],
        [{"x" * 64: ""}, {"x": "y" * 256}, {"a": 1}, None],
    ),
]
ACCEPTED = [(pointer, value) for pointer, inside, _ in BOUNDS for value in inside]
REFUSED = [(pointer, value) for pointer, _, outside in BOUNDS for value in outside]


def _id(value: object) -> str:
    return repr(value)[:40]


@pytest.mark.parametrize(("pointer", "value"), ACCEPTED, ids=_id)
def test_a_value_just_inside_its_bounds_is_accepted(pointer: str, value: Any) -> None:
    spec = JobSpec.model_validate(changed(train_document(), pointer, value))
    here: Any = spec
    for name in pointer.strip("/").split("/"):
        here = getattr(here, name)
    assert (here.model_dump(exclude_unset=True) if hasattr(here, "model_dump") else here) == value


@pytest.mark.parametrize(("pointer", "value"), REFUSED, ids=_id)
def test_a_value_just_outside_its_bounds_is_refused(pointer: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        JobSpec.model_validate(changed(train_document(), pointer, value))


@pytest.mark.parametrize(
    "pointer", ["/name", "/kind", "/train", "/train/task", "/train/batch", "/train/batch/size"]
)
def test_a_field_without_a_default_is_needed(pointer: str) -> None:
    with pytest.raises(ValidationError):
        JobSpec.model_validate(changed(train_document(), pointer, REMOVE))


@pytest.mark.parametrize(
    "command",
    [[], [""], ["  "], "train.py", ["a", 1], ["a\0b"], ["train.py"] * 1001, None],
    ids=_id,
)
def test_a_script_without_a_program_to_run_is_refused(command: object) -> None:
    with pytest.raises(ValidationError):
        JobSpec.model_validate(changed(script_document(), "/script/command", command))


@pytest.mark.parametrize(
    "name",
    [
        "RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "CUDA_VISIBLE_DEVICES",
        "LOCKSTEP_METRICS",
        "TORCHELASTIC_RUN_ID",
    ],
)
def test_a_job_may_not_set_variables_of_the_launcher(name: str) -> None:
    with pytest.raises(ValidationError):
        JobSpec.model_validate(changed(train_document(), f"/env/{name}", "1"))


@pytest.mark.parametrize(
    ("optimizer", "accepted"),
    [
        ({"name": "adamw", "betas": [0, 0.999], "eps": 1}, True),
        ({"name": "adamw", "betas": [0.9]}, False),
        ({"name": "adamw", "betas": [0.9, 1]}, False),
        ({"name": "adamw", "eps": 0}, False),
        ({"name": "adamw", "momentum": 0.9}, False),
        ({"name": "sgd", "lr": 1000, "momentum": 0.99, "nesterov": True}, True),
        ({"name": "sgd", "nesterov": True}, False),
        ({"name": "sgd", "momentum": 1}, False),
        ({"name": "sgd", "weight_decay": -1}, False),
        ({"name": "adam"}, False),
        ({"name": "torch.optim.NAdam", "lr": 0.1, "args": {"momentum_decay": 0.01}}, True),
        ({"name": "mine.Optimizer", "weight_decay": 0.1}, True),
        ({"name": "torch.optim.NAdam", "momentum": 0.9}, False),
        ({"name": "torch.optim.NAdam", "args": {"lr": 0.9}}, False),
        ({"name": "torch.optim.NAdam", "args": {"params": []}}, False),
        ({"name": "torch.optim."}, False),
        ({"name": ".NAdam"}, False),
        ({"name": "torch.optim.N-Adam"}, False),
        ({"name": 5}, False),
        ("adamw", False),
        ({"momentum": 0.9}, False),
    ],
    ids=_id,
)
def test_each_optimizer_has_its_own_settings(optimizer: dict[str, Any], accepted: bool) -> None:
    document = changed(train_document(), "/train/optimizer", optimizer)
    if accepted:
        assert JobSpec.model_validate(document).train.optimizer.name == optimizer["name"]
    else:
        with pytest.raises(ValidationError):
            JobSpec.model_validate(document)


def test_an_optimizer_class_is_refused_where_ranks_average_state() -> None:
    document = changed(train_document(), "/train/optimizer", {"name": "torch.optim.NAdam"})
    strategy = {"name": "local_sgd", "sync_every_steps": 2}
    with pytest.raises(ValidationError, match=r"with strategy local_sgd ranks must average state"):
        JobSpec.model_validate(changed(document, "/train/strategy", strategy))


def test_an_optimizer_without_a_name_is_adamw() -> None:
    spec = read_spec(changed(train_document(), "/train/optimizer", {"lr": 0.01}))
    assert (spec.train.optimizer.name, spec.train.optimizer.lr) == ("adamw", 0.01)


def test_a_run_has_exactly_one_length() -> None:
    both = changed(train_document(), "/train/epochs", 2)
    neither = changed(train_document(), "/train/steps", REMOVE)
    for document in (both, neither):
        with pytest.raises(ValidationError):
            JobSpec.model_validate(document)
    assert JobSpec.model_validate(changed(neither, "/train/epochs", 2)).train.epochs == 2


@pytest.mark.parametrize(("kind", "section"), [("train", "script"), ("script", "train")])
def test_a_kind_has_its_own_section_and_no_other(kind: str, section: str) -> None:
    documents = {"train": train_document(), "script": script_document()}
    with pytest.raises(ValidationError):
        JobSpec.model_validate({**documents[kind], section: documents[section][section]})
    with pytest.raises(ValidationError):
        JobSpec.model_validate({**documents[section], "kind": kind})


def test_a_stop_begins_before_the_timeout_and_a_train_job_gets_no_signal() -> None:
    script = {**script_document(), "timeout_seconds": 60, "stop_grace_seconds": 60}
    with pytest.raises(ValidationError, match=r"expected less than timeout_seconds \(60\)"):
        JobSpec.model_validate(script)
    assert JobSpec.model_validate({**script, "stop_grace_seconds": 59}).stop_signal == "TERM"
    with pytest.raises(ValidationError, match="its ranks save and end without a signal"):
        JobSpec.model_validate({**train_document(), "stop_signal": "USR2"})


def test_a_persons_own_task_needs_code() -> None:
    document = changed(train_document(), "/train/task", "tasks/mine.py:Mine")
    with pytest.raises(ValidationError):
        JobSpec.model_validate(document)
    assert (
        JobSpec.model_validate({**document, "code": {"path": "/data/code"}}).train.task
        == "tasks/mine.py:Mine"
    )


@pytest.mark.parametrize(
    "task",
    ["/abs/mine.py:Mine", "../mine.py:Mine", "mine.py", "mine.py:", "mine.py:1x", "mine:Mine"],
)
def test_a_task_file_outside_the_code_is_no_task(task: str) -> None:
    document = {**changed(train_document(), "/train/task", task), "code": {"path": "/data/code"}}
    with pytest.raises(ValidationError):
        JobSpec.model_validate(document)


def test_devices_divide_over_the_nodes() -> None:
    document = changed(train_document(), "/resources", {"gpus": 3, "nodes": 2})
    with pytest.raises(ValidationError):
        JobSpec.model_validate(document)
    assert JobSpec.model_validate(changed(document, "/resources/gpus", 4)).device_count() == 4


@pytest.mark.parametrize(
    ("resources", "nproc", "ranks", "devices"),
    [
        ({"gpus": 4}, None, 4, 4),
        ({"gpus": 2, "nodes": 2}, 8, 16, 2),
        ({"gpus": {"min": 1, "max": 6}}, None, 6, 6),
    ],
)
def test_one_rank_runs_per_device_unless_a_script_sets_another_number(
    resources: dict[str, Any], nproc: int | None, ranks: int, devices: int
) -> None:
    document = {**script_document(), "resources": resources}
    spec = JobSpec.model_validate(changed(document, "/script/nproc_per_node", nproc))
    assert (spec.world_size(), spec.device_count()) == (ranks, devices)


INTERFACE_EXAMPLE = """
name: stdlib-gpt
project: default
kind: train                          # train | script
resources: {gpus: 2, gpu_type: null, nodes: null}
train:
  task: causal_lm
  task_args: {}
  batch: {size: 64, micro_size: 8}
  steps: 200
  optimizer: {name: adamw, lr: 3.0e-4, weight_decay: 0.1, betas: [0.9, 0.95]}
  schedule: {name: cosine, warmup_steps: 20, min_lr: 3.0e-5}
  clip_grad_norm: 1.0
  precision: fp32
  strategy: {name: ddp, bucket_cap_mb: null, compression: none}
  checkpoint: {every_steps: 50, keep_last: 3, keep_best: null}
  eval: {every_steps: 50}
  log_every_steps: 1
  seed: 1337
  init_from: null
  deterministic: false
  compile: false
  activation_checkpointing: false
  memory_headroom: 0.15
code: null
env: {}
secrets: []
retry: {max: 3}
timeout_seconds: null
priority: 50
labels: {}
"""


def test_the_interfaces_own_example_is_accepted_and_is_all_there_is() -> None:
    document = YAML(typ="safe").load(INTERFACE_EXAMPLE)
    spec = read_spec(document)
    assert set(document) | {
        "script",
        "retention",
        "continues",
        "outputs",
        "stop_signal",
        "stop_grace_seconds",
    } == set(JobSpec.model_fields)
    assert set(document["train"]) | {
        "epochs",
        "parallel",
        "loader",
        "stall",
        "debug",
        "non_finite",
        "tf32",
    } == set(type(spec.train).model_fields)


def test_the_example_of_the_interface_has_the_defaults() -> None:
    document = YAML(typ="safe").load(INTERFACE_EXAMPLE)
    short = {"name": "stdlib-gpt", "kind": "train", "resources": {"gpus": 2}}
    chosen = {
        name: document["train"][name]
        for name in ("task", "batch", "steps", "schedule", "checkpoint", "eval")
    }
    assert read_spec({**short, "train": chosen}) == read_spec(document)


def test_a_spec_survives_json_and_back() -> None:
    for document in (
        YAML(typ="safe").load(INTERFACE_EXAMPLE),
        {**script_document(), "code": {"git": "https://example.org/x.git", "ref": "v1"}},
    ):
        spec = JobSpec.model_validate(document)
        assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


def test_the_json_schema_has_every_field_with_its_description_and_bounds() -> None:
    schema = JobSpec.model_json_schema()
    json.dumps(schema)
    for name, definition in {"JobSpec": schema, **schema["$defs"]}.items():
        assert definition["additionalProperties"] is False, name
    gpus = schema["$defs"]["Resources"]["properties"]["gpus"]
    assert {"type": "integer", "minimum": 1, "maximum": 4096} in gpus["oneOf"]
    assert gpus["description"].startswith("Devices over all nodes")
    assert schema["properties"]["priority"]["maximum"] == 100


def test_a_spec_cannot_be_changed_after_it_was_read() -> None:
    spec = read_spec(train_document())
    with pytest.raises(ValidationError):
        spec.name = "other"
