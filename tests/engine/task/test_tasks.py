"""The built-in tasks, and the loading of a user's own task."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits

from lockstep.domain.spec import tasks as names
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.task.builtin import BUILT_IN
from lockstep.engine.task.causal_lm import CausalLM
from lockstep.engine.task.loading import load_task
from lockstep.engine.task.text import IGNORED, read_text, text_files


def test_the_tasks_of_engine_and_domain_are_the_same() -> None:
    assert BUILT_IN.keys() == names.BUILT_IN.keys()
    for name, schema in names.BUILT_IN.items():
        needed = {field: "x" for field, about in schema.model_fields.items() if about.is_required()}
        assert load_task(name, needed, Path()).args == schema(**needed)  # type: ignore[attr-defined]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "b/two.py").write_bytes(bytes(range(100)))
    (tmp_path / "a.py").write_bytes(bytes(range(100, 200)))
    (tmp_path / "c.txt").write_bytes(b"not matched")
    (tmp_path / "site-packages/x.py").write_bytes(b"not the text's")
    return tmp_path


def test_text_is_read_in_the_order_of_names_up_to_its_limit(text: Path) -> None:
    assert [file.name for file in text_files(text, "*.py")] == ["a.py", "two.py"]
    assert read_text(text, "*.py", 150) == bytes([*range(100, 200), *range(50)])


def test_every_byte_is_a_target_once_over_both_splits(text: Path) -> None:
    task = CausalLM(path=str(text), context=8, max_bytes=1000)
    targets: list[int] = []
    for split in ("train", "eval"):
        dataset = task.dataset(split)
        assert len(dataset) > 0
        for item in range(len(dataset)):
            tokens, following = dataset[item]
            assert tokens.shape == following.shape == (8,)
            counted = following != IGNORED
            assert torch.equal(tokens[1:][counted[1:]], following[:-1][counted[1:]])
            targets += following[counted].tolist()
    assert sorted(targets) == sorted([*range(101, 200), *range(100)])


def test_the_default_text_is_the_standard_library_and_deterministic() -> None:
    one, two = (
        CausalLM(max_bytes=100_000).dataset("train"),
        CausalLM(max_bytes=100_000).dataset("train"),
    )
    assert len(one) > 700
    assert all(torch.equal(one[item][0], two[item][0]) for item in range(0, len(one), 50))


def test_gpt_starts_at_uniform_entropy_and_has_no_biases() -> None:
    task = CausalLM(max_bytes=50_000, context=32, layers=2, heads=2, width=16)
    torch.manual_seed(0)
    model = task.model()
    assert not [name for name, _ in model.named_parameters() if name.endswith("bias")]
    dataset = task.dataset("train")
    batch = task.collate([dataset[item] for item in range(16)])
    assert task.weight(batch) == 16 * 32
    loss = task.loss(model, batch)
    assert isinstance(loss, torch.Tensor)
    assert loss.item() / task.weight(batch) == pytest.approx(math.log(256), rel=0.02)


def test_gpt_does_not_look_ahead() -> None:
    model = CausalLM(context=16, layers=2, heads=2, width=16).model().eval()
    tokens = torch.arange(16).unsqueeze(0)
    changed = tokens.clone()
    changed[0, 9] = 200
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    assert torch.allclose(before[:, :9], after[:, :9], atol=1e-6)
    assert not torch.allclose(before[:, 9:], after[:, 9:], atol=1e-6)


def test_digits_are_split_without_overlap_and_evaluated_by_accuracy() -> None:
    task = load_task("image_classification", {"width": 6, "eval_fraction": 0.2}, Path())
    train, held_out = task.dataset("train"), task.dataset("eval")
    assert (len(train), len(held_out)) == (1438, 359)  # type: ignore[arg-type]
    assert not set(train.indices) & set(held_out.indices)  # type: ignore[attr-defined]
    read = load_digits()  # By scikit-learn itself, which the task does not import.
    for split in (train, held_out):
        images, labels = task.collate([split[item] for item in range(len(split))])  # type: ignore[arg-type, index]
        indices = split.indices  # type: ignore[attr-defined]
        assert (images.squeeze(1) * 16).tolist() == read.images[indices].tolist()
        assert labels.tolist() == read.target[indices].tolist()
    images, labels = task.collate([held_out[item] for item in range(20)])
    assert images.shape == (20, 1, 8, 8)
    assert 0 <= images.min() < images.max() <= 1
    model = task.model()
    found = task.evaluate(model, (images, labels))
    assert found["accuracy"][1] == found["loss"][1] == 20
    assert float(found["accuracy"][0]) == (model(images).argmax(1) == labels).sum()


OWN = """
    from torch import nn
    from lockstep import Task
    import neighbour

    class Good(Task):
        def __init__(self, size, colour="red"):
            self.size = size

        def model(self):
            return nn.Linear(self.size, neighbour.OUT)

    class NoTask:
        pass

    class Careful(Task):
        def __init__(self, size):
            if size < 0:
                raise ValueError(f"size must not be negative, got {size}")
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    (tmp_path / "mine.py").write_text(textwrap.dedent(OWN))
    (tmp_path / "neighbour.py").write_text("OUT = 3\n")
    return tmp_path


def test_a_task_of_a_user_gets_its_arguments_and_imports(
    code: Path,
) -> None:
    task = load_task("mine.py:Good", {"size": 5}, code)
    assert task.model().weight.shape == (3, 5)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        (
            "other.py:Good",
            {},
            r"the job's code has no file other.py \(mine.py, neighbour.py\)",
        ),
        ("mine.py:Bad", {}, r"mine.py has no class 'Bad'; its tasks: Good, Careful"),
        ("mine.py:NoTask", {}, r"NoTask in mine.py is not a Task"),
        ("mine.py:Good", {}, r"missing a required argument: 'size'"),
        (
            "mine.py:Good",
            {"size": 1, "color": "blue"},
            r"expects \(size, colour='red'\).*unexpected keyword argument 'color'",
        ),
        (
            "transformer",
            {},
            r"unknown task 'transformer'; expected one of causal_lm, hf_causal_lm, "
            r"image_classification",
        ),
    ],
)
def test_a_task_that_cannot_be_built_is_refused_with_alternatives(
    code: Path, name: str, args: dict[str, object], message: str
) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        load_task(name, args, code)
    assert caught.value.reason == "bad_spec"


def test_an_exception_of_a_constructor_is_raised(code: Path) -> None:
    with pytest.raises(ValueError, match="size must not be negative, got -1"):
        load_task("mine.py:Careful", {"size": -1}, code)


@pytest.mark.parametrize("name", ["api", "client", "domain", "engine", "storage", "worker"])
def test_code_may_have_modules_of_any_name(code: Path, name: str) -> None:
    (code / f"{name}.py").write_text("SIZE = 7\n")
    (code / "mine.py").write_text(
        f"import lockstep\nfrom {name} import SIZE\nclass Own(lockstep.Task):\n    size = SIZE\n"
    )
    task = load_task("mine.py:Own", {}, code)
    assert task.size == 7  # type: ignore[attr-defined] # of the class above
