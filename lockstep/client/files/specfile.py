"""Job spec in a YAML file, with line numbers, and the changes of ``--set``.

Reads YAML 1.2 (JSON is part of it), applies ``--set``, validates the result with the server's
function, and maps a JSON pointer, from here or from the server's answer, to a line such as
``examples/gpt.yaml:12``.

Not here: the rules (``domain.spec.reading``, ``domain.spec.job``).
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from lockstep.client.errors import SpecRefusedError, UsageError
from lockstep.domain import limits
from lockstep.domain.errors import LockstepError
from lockstep.domain.spec.changes import FieldNotFoundError, put
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.views import FieldProblem

_YAML_NEXT: Final = "check indentation, brackets and quotes in this line and the one before"
_INTEGER_BITS_MAX: Final = 1_024
"""No field takes more, and Python refuses to print an integer of thousands of digits."""
VALUES_MAX: Final = 20_000
"""Values in one document, aliases written out: a few lines of YAML can otherwise mean billions."""


class SpecFile:
    """Document with the line of each value.

    Attributes
    ----------
    document : dict
        The spec as it is sent: the user's values, without defaults.
    """

    def __init__(self, source: str, document: dict[str, Any], lines: dict[str, int]):
        self.source = source
        self.document = document
        self._lines = lines
        self._set_by: dict[str, str] = {}

    def put(self, path: Sequence[str], value: Any, written_as: str) -> None:
        """Set one value, making the objects on the way.

        ``written_as`` names the place for messages.
        """
        try:
            put(self.document, path, value)
        except FieldNotFoundError as error:
            raise UsageError(f"{written_as}: {error}") from None
        self._set_by[pointer_to(path)] = written_as

    def where(self, pointer: str) -> str:
        """Return the location of a value: ``FILE:LINE``, ``--set …``, or the file alone."""
        for candidate in _upward(pointer):
            if candidate in self._set_by:
                return self._set_by[candidate]
            # Line 1, of the whole document, does not help to find a missing field.
            if candidate and candidate in self._lines:
                return f"{self.source}:{self._lines[candidate]}"
        return self.source

    def explain(self, problem: FieldProblem) -> str:
        """Return one invalid value as one line: location, field, expectation, next step."""
        field = problem.pointer.lstrip("/").replace("/", ".").replace("~1", "/").replace("~0", "~")
        words = f"{field}: {problem.message}" if field else problem.message
        advice = f" ({problem.next_step})" if problem.next_step else ""
        return f"{self.where(problem.pointer)}: {words}{advice}"

    def check(self) -> JobSpec:
        """The spec, checked as the server checks it.

        Raises
        ------
        SpecRefusedError
            With every wrong value.
        """
        try:
            return read_spec(self.document)
        except LockstepError as error:
            problems = [
                FieldProblem(
                    pointer=field.pointer, message=field.message, next_step=field.next_step
                )
                for field in error.fields
            ]
            raise self.refused(problems) from None

    def refused(self, problems: Sequence[FieldProblem]) -> SpecRefusedError:
        """The refusal of this document for these wrong values, with the place of each."""
        return SpecRefusedError(
            "\n".join(self.explain(problem) for problem in problems), list(problems)
        )


def read(file: str, settings: Sequence[str], stdin: TextIO) -> SpecFile:
    """Read a spec from a file or from ``stdin`` (``-``), and apply ``--set``.

    Raises
    ------
    UsageError
        If the file cannot be read, or a setting is not of that form.
    SpecRefusedError
        If the text is no YAML, or holds something that JSON has no word for.
    """
    spec = parse(_text(file, stdin), "stdin" if file == "-" else file)
    for setting in settings:
        spec.put(*read_setting(setting), f"--set {setting}")
    return spec


def read_setting(setting: str) -> tuple[list[str], Any]:
    """The path and the value of ``--set name.of.field=value``; the value is YAML.

    Raises
    ------
    UsageError
        If it is not of that form.
    SpecRefusedError
        If the value is no YAML, or something that JSON has no word for.
    """
    name, equals, text = setting.partition("=")
    path = name.strip().split(".")
    if not equals or not all(path):
        raise UsageError(
            f"--set {setting}: expected name.of.field=value, such as --set train.steps=100"
        )
    value = _load(text, f"--set {setting}")[0] if text.strip() else ""
    return path, _plain(value, f"--set {setting}", "", {}, [0])


def parse(text: str, source: str) -> SpecFile:
    """A document from YAML text; ``source`` names it in messages."""
    value, lines = _load(text, source)
    document = _plain(value, source, "", lines, [0])
    if not isinstance(document, dict):
        try:
            read_spec(document)
        except LockstepError as error:
            problem = FieldProblem(pointer="", message=error.message)
            raise SpecRefusedError(
                f"{source}: {error.message}", [problem], next_step=error.next_step
            ) from None
    return SpecFile(source, document, lines)


def _text(file: str, stdin: TextIO) -> str:
    try:
        data = _bytes(file, stdin)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"{file}: cannot be read: {(error.strerror or str(error)).lower()}",
            next_step="give the YAML file of a job, such as examples/gpt.yaml",
        ) from None
    except UnicodeDecodeError as error:
        raise _not_utf8("stdin" if file == "-" else file, data, error.start) from None
    if len(data) > limits.SPEC_BYTES_MAX:
        raise UsageError(
            f"{file}: is larger than {limits.SPEC_BYTES_MAX // 1024} KiB, the limit for a job spec"
        )
    return text


def _bytes(file: str, stdin: TextIO) -> bytes:
    most = limits.SPEC_BYTES_MAX + 1
    if file != "-":
        with Path(file).open("rb") as opened:
            return opened.read(most)
    # The text layer decodes by the locale, with surrogates for what it cannot decode.
    raw = getattr(stdin, "buffer", None)
    data: bytes = raw.read(most) if raw is not None else stdin.read(most).encode()
    return data


def _not_utf8(source: str, data: bytes, at: int) -> UsageError:
    """Return the refusal of a spec in another encoding, with the place of its first odd byte."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return UsageError(
            f"{source}: is UTF-16 text; a job spec is UTF-8",
            next_step="save it as UTF-8, or convert it with: iconv -f UTF-16 -t UTF-8",
        )
    line = data.count(b"\n", 0, at) + 1
    return UsageError(
        f"{source}:{line}: is not UTF-8 text: byte {at} is 0x{data[at]:02x}",
        next_step="save it as UTF-8, or convert it with: iconv -f LATIN1 -t UTF-8",
    )


def _load(text: str, source: str) -> tuple[Any, dict[str, int]]:
    """The value of a YAML text, and the line (from 1) of every value by JSON pointer."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        value = YAML(typ="safe", pure=True).load(io.StringIO(text))
        lines: dict[str, int] = {}
        node = YAML(typ="safe", pure=True).compose(io.StringIO(text))
        _collect(node, "", lines, [0])
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(filter(None, (error.context, error.problem))).replace("\n", " ")
        place = f"{source}:{mark.line + 1}" if mark is not None else source
        raise SpecRefusedError(
            f"{place}: not valid YAML: {what}", [], next_step=_YAML_NEXT
        ) from None
    except (YAMLError, ValueError, RecursionError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SpecRefusedError(
            f"{source}: not valid YAML: {what}", [], next_step=_YAML_NEXT
        ) from None
    return value, lines


def _collect(node: Any, pointer: str, lines: dict[str, int], seen: list[int]) -> None:
    """Note the line of every value below ``node``; of an object's field, the line of its name."""
    seen[0] += 1
    if node is None or seen[0] > VALUES_MAX:
        return
    lines.setdefault(pointer, node.start_mark.line + 1)
    if isinstance(node.value, list):
        for number, item in enumerate(node.value):
            if isinstance(item, tuple):
                key, value = item
                inner = f"{pointer}/{_escape(str(key.value))}"
                lines[inner] = key.start_mark.line + 1
                _collect(value, inner, lines, seen)
            else:
                _collect(item, f"{pointer}/{number}", lines, seen)


def _plain(value: Any, source: str, pointer: str, lines: dict[str, int], seen: list[int]) -> Any:
    """Return the value as JSON.

    Values without a JSON form (dates, sets, names that are no text) are refused with their
    location.
    """
    seen[0] += 1
    if seen[0] > VALUES_MAX:
        raise SpecRefusedError(
            f"{source}: more than {VALUES_MAX:,} values, the limit for a job spec", []
        )
    if isinstance(value, dict):
        odd = next((key for key in value if not isinstance(key, str)), None)
        if odd is not None:
            raise _odd(source, f"{pointer}/{_escape(str(odd))}", lines, f"the name {odd!r}")
        return {
            key: _plain(item, source, f"{pointer}/{_escape(key)}", lines, seen)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            _plain(item, source, f"{pointer}/{number}", lines, seen)
            for number, item in enumerate(value)
        ]
    if isinstance(value, int) and value.bit_length() > _INTEGER_BITS_MAX:
        raise _odd(source, pointer, lines, f"an integer of {value.bit_length()} bits")
    if (
        value is None
        or isinstance(value, bool | int | str)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return value
    raise _odd(source, pointer, lines, str(value))


def _odd(source: str, pointer: str, lines: dict[str, int], shown: str) -> SpecRefusedError:
    place = f"{source}:{lines[pointer]}" if pointer in lines else source
    field = pointer.lstrip("/").replace("/", ".")
    words = (
        f"{shown} is not a text, a number, true, false, a list or an object; quote it if it is a "
        f"text"
    )
    return SpecRefusedError(
        f"{place}: {field}: {words}", [FieldProblem(pointer=pointer, message=words)]
    )


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def pointer_to(path: Sequence[str]) -> str:
    """The JSON pointer (RFC 6901) of a path."""
    return "".join(f"/{_escape(part)}" for part in path)


def _upward(pointer: str) -> list[str]:
    """The pointer and those of everything around it, innermost first."""
    parts = pointer.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
