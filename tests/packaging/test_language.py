"""The check of the code's prose: its figures, compared with counts made by hand."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs/language.py"
MODULE = '''"""What a module holds."""

# Nobody reads what is here.
class One:
    """Container of values."""

    def two(self, a, b):
        """Return a or b."""
        return a if a and b else [x for x in b if x]
'''


@pytest.fixture
def language() -> ModuleType:
    spec = spec_from_file_location("language", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    import sys

    sys.modules["language"] = module  # For its dataclasses.
    spec.loader.exec_module(module)
    return module


def test_the_figures_of_a_module(language: ModuleType) -> None:
    reading = language.Reading()
    reading.add(MODULE)
    reading.add("class One: ...\n")
    words = 4 + 5 + 3 + 4
    assert reading.words.total() == words
    found = list(reading.figures().values())
    assert found[:4] == [1000 * 2 / words, 0, 1000 * 1 / words, 0]
    assert found[4] == pytest.approx(100 / 3)
    assert found[5] == 1


def test_a_figure_above_its_limit_fails_the_check(
    language: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["language.py", "--check"])
    monkeypatch.setattr(language, "PACKAGES", ("domain",))  # `make check` reads all folders.
    monkeypatch.setattr(language, "TEST_FOLDERS", ("tests/packaging",))
    assert language.main() == 0
    monkeypatch.setitem(language.LIMITS, "what", (0.0, 0.0))
    assert language.main() == 1
    assert capsys.readouterr().err.startswith("above its limit: what: ")


def test_tests_have_limits_of_their_own(
    language: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("sys.argv", ["language.py", "--check"])
    monkeypatch.setattr(language, "PACKAGES", ("domain",))
    monkeypatch.setattr(language, "TEST_FOLDERS", (str(tmp_path),))
    (tmp_path / "test_one.py").write_text(MODULE)
    assert language.main() == 1
    above = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1:3] for line in above] == [
        ["tests", "what"],
        ["tests", "nobody, somebody, everybody, anybody"],
        ["tests", "docstrings with a wh-word first, %"],
    ]


def test_no_limit_is_below_its_goal(language: ModuleType) -> None:
    limits = [*language.LIMITS.values(), *language.TEST_LIMITS.values()]
    assert all(limit >= goal for limit, goal in limits)


def test_goals_of_the_tests_are_twice_those_of_the_product(language: ModuleType) -> None:
    for name, (_, goal) in language.TEST_LIMITS.items():
        assert goal == pytest.approx(2 * language.LIMITS[name][1])


def test_linked_folders_are_read_once(language: ModuleType) -> None:
    found = list(language.modules(*language.PACKAGES))
    assert len({path.resolve() for path in found}) == len(found) > 300
