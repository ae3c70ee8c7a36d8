"""Names that nodes offer and jobs need: their form, in a setting and in a spec, and their words."""

from __future__ import annotations

import pytest

from lockstep.domain.errors import LockstepError
from lockstep.domain.kinds.offers import CHARS_MAX, OFFERS_MAX, lacking, offers_of
from lockstep.domain.spec.reading import read_spec
from tests.domain.documents import changed, script_document, train_document

LONGEST = "a" * CHARS_MAX
GOOD = ["data:imagenet", "rack-7", "image:team/app:1.2", "0", LONGEST]
BAD = ["", " ", "Data:x", "data:", ":x", "-x", "a b", "ä", "a\n", "a:b\0", "٣", LONGEST + "a"]


def refused(needs: object) -> LockstepError:
    with pytest.raises(LockstepError) as found:
        read_spec(changed(script_document(), "/resources/needs", needs))
    return found.value


def test_a_setting_and_a_spec_have_one_form_of_names() -> None:
    document = changed(script_document(), "/resources/needs", GOOD)
    assert read_spec(document).resources.needs == offers_of(",".join(GOOD)) == sorted(GOOD)


@pytest.mark.parametrize("name", BAD)
def test_a_name_of_another_form_is_refused_with_its_place(name: str) -> None:
    (field,) = refused(["rack:a", name]).fields
    assert (field.pointer, "expected a" in field.message) == ("/resources/needs/1", True)
    if name.strip() == name:
        with pytest.raises(ValueError, match="expected a"):
            offers_of(f"rack:a,{name}")


def test_names_that_are_given_twice_count_once() -> None:
    document = changed(script_document(), "/resources/needs", ["b", "a", "b"])
    assert read_spec(document).resources.needs == offers_of(" b, a ,b") == ["a", "b"]
    assert offers_of(" ") == []


@pytest.mark.parametrize("count", [OFFERS_MAX + 1, 10_000])
def test_too_many_names_are_refused(count: int) -> None:
    names = [f"n{number}" for number in range(count)]
    (field,) = refused(names).fields
    assert field.pointer == "/resources/needs"
    assert field.message.startswith(f"expected at most {OFFERS_MAX} entries")
    with pytest.raises(ValueError, match=f"expected at most {OFFERS_MAX} names, got {count}"):
        offers_of(",".join(names))


def test_a_setting_cannot_give_what_the_agent_finds() -> None:
    for name in ("python:3.99", "kind:cuda", "python"):
        with pytest.raises(ValueError, match=f"'{name}' is found by the agent itself"):
            offers_of(f"data:x,{name}")


def test_a_strategy_of_one_process_needs_gpus() -> None:
    document = changed(train_document(), "/resources/needs", ["rack:a"])
    assert read_spec(document).needs() == ["rack:a"]
    one = changed(document, "/train/strategy", {"name": "data_parallel"})
    assert read_spec(one).needs() == ["kind:cuda", "rack:a"]


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ("", ""),
        ("a", ""),
        ("cb", ""),
        ("d", "d"),
        ("aed", "d or e"),
        ("ac", "a and c together"),
    ],
)
def test_what_no_node_offers_is_put_in_words(needs: str, words: str) -> None:
    assert lacking(frozenset(needs), [frozenset("ab"), frozenset("bc")]) == words
