"""Patterns against pathspec, another implementation of ``.gitignore``, and against hostile ones."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pathspec import PathSpec

from lockstep.system.patterns import PatternError, Patterns

PART = st.sampled_from(["a", "b", "ab", "ba", "a.pt"])
GLOB = st.sampled_from(["a", "ab", "*", "**", "a*", "*b", "?b", "*.pt", "[ab]", "[!a]b", "[^b]"])
NAME = st.lists(PART, min_size=1, max_size=4).map("/".join)


@st.composite
def patterns(draw: st.DrawFn) -> list[str]:
    """Lists of patterns, anchored or not, of folders or not, and some that take away."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        middle = "/".join(draw(st.lists(GLOB, min_size=1, max_size=3)))
        before, after = (
            draw(st.sampled_from(["", "/", "!", "!/"])),
            draw(st.sampled_from(["", "/"])),
        )
        found.append(f"{before}{middle}{after}")
    return found


@given(patterns(), NAME)
@example(["out/**"], "out")
@example(["a/**/b"], "a/b")
@example(["**", "!a/"], "b/a/ab")
def test_names_are_selected_as_by_pathspec(listed: list[str], name: str) -> None:
    # pathspec differs from git there: a last ``/*`` selects what is below a folder that it matches,
    # and a last ``/**/`` selects no file that lies in the folder itself.
    assume(not any(re.search(r"/\*{1,2}/$|/\*$", pattern) for pattern in listed))
    expected = PathSpec.from_lines("gitignore", listed).match_file(name) or name in listed
    assert (Patterns(listed).select([name]) == {name}) == expected


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*a" * 100 + "*b", "a" * 255),
        ("**/" * 100 + "*a" * 50 + "*b", "/".join(["a"] * 200)),
        ("**/a/" * 60 + "b", "a/" * 199 + "c"),
        ("?" * 200 + "*" * 200 + "b", "a" * 255),
    ],
)
def test_hostile_patterns_and_names_take_little_time(pattern: str, name: str) -> None:
    """One regular expression for the first of them takes longer than the universe exists."""
    before = time.process_time()
    assert Patterns([pattern]).select([name]) == set()
    assert time.process_time() - before < 5.0


@pytest.mark.parametrize("text", ["", "!", "/", "#a", "  ", "//", "!/"])
def test_texts_that_select_nothing_are_refused(text: str) -> None:
    with pytest.raises(PatternError, match="selects nothing"):
        Patterns([text])


def test_a_name_that_equals_a_pattern_is_selected() -> None:
    assert Patterns(["a[1].pt", "\\#x", "*.tx?"]).select(["a[1].pt", "a1.pt", "#x", "b.txt"]) == {
        "a[1].pt",
        "a1.pt",
        "#x",
        "b.txt",
    }


@pytest.mark.parametrize(
    ("path", "pattern"),
    [("a.pt", "/a.pt"), ("#a", "/#a"), ("!a/b", "/!a/b"), ("o/[1] *?\\.pt", "o/[[]1] [*][?]\\.pt")],
)
def test_the_pattern_of_the_page_selects_one_path_alone(path: str, pattern: str) -> None:
    others = [f"x/{path}", path.replace("[1]", "1"), path.replace("*", "zz"), path[1:] or "a"]
    assert Patterns([pattern]).select({path, *others}) == {path}
