"""Dataclasses from flags, TOML and JSON: what fits comes back the same, what does not is one clear error."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.cli.flags import as_flag
from elmokit.config import (
    Count,
    Measured,
    Range,
    Share,
    Size,
    check,
    combine,
    parse_json,
    plain,
    read_json,
    read_toml,
    revive,
    setting,
)
from elmokit.errors import ConfigError, ElmokitError, FormatError, InputError, WeightsError


class Named(NamedTuple):
    name: str
    version: int = 1


@dataclass(frozen=True, slots=True)
class Part:
    width: Size = 3
    share: Share = 0.5

    def __post_init__(self) -> None:
        if self.width == 13:
            raise InputError("width 13 and share do not go together")


@dataclass(frozen=True, slots=True)
class Whole:
    name: str
    part: Part
    kind: Literal["a", "b", 1] = "a"
    pairs: tuple[tuple[int, int], ...] = setting(((1, 2), (3, 4)), "pairs")
    point: tuple[int, str] = (1, "x")
    counts: dict[str, Count] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    column: int | str = 0
    measured: Measured | None = None
    named: Named = Named("n")
    sign: Annotated[float, Range(above=-1, below=1)] = 0.0
    flag: bool = False
    rest: Any = None


WHOLE = Whole("w", Part(4, 0.25), counts={"x": 3}, parts=[Part(), Part(5)], column="c", named=Named("other", 2))


def test_a_dataclass_comes_back_from_json() -> None:
    assert revive(Whole, json.loads(json.dumps(plain(WHOLE)))) == WHOLE
    assert parse_json(json.dumps(plain(WHOLE)).encode(), Whole, source="here") == WHOLE
    assert revive(Whole, plain(WHOLE)) == WHOLE  # tuples as they are


def test_values_take_their_fields_type() -> None:
    made = revive(Whole, {"name": "w", "part": {"width": 4.0, "share": 1}, "measured": float("inf"), "rest": [1]})
    assert (made.part.width, type(made.part.width)) == (4, int)  # 4.0, as some tools write a 4
    assert type(made.part.share) is float
    assert made.measured == float("inf")
    assert revive(Whole, {"name": "w", "part": {}, "named": {"name": "x"}}).named == Named("x", 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nane": 1}, "the file: unknown field 'nane'; the fields are column, counts, flag"),
        ({"part": {"widht": 1}}, "the file: unknown field 'widht' in part; the fields are share, width"),
        ({"name": 3}, "the file: name is 3; expected a string"),
        ({"name": None}, "the file: name is null; expected a string"),
        ({"part": [1]}, r"the file: part is \[1\]; expected an object {...}"),
        ({"part": {"width": 0}}, "the file: part.width is 0; expected a whole number from 1 to 10,000,000$"),
        ({"part": {"width": True}}, "the file: part.width is true; expected a whole number from 1"),
        ({"part": {"width": 1.5}}, "the file: part.width is 1.5; expected a whole number from 1"),
        ({"part": {"share": 1.25}}, "the file: part.share is 1.25; expected a number from 0 to 1$"),
        ({"part": {"share": float("nan")}}, "the file: part.share is NaN; expected a number from 0 to 1"),
        ({"part": {"width": 13}}, "^the file: part: width 13 and share do not go together$"),
        ({"sign": -1}, "the file: sign is -1; expected a number above -1 and below 1"),
        ({"kind": "c"}, 'the file: kind is "c"; expected one of a, b, 1'),
        ({"kind": True}, "the file: kind is true; expected one of a, b, 1"),
        ({"pairs": [[1, 2], [3]]}, r"the file: pairs is \[\[1, 2\], \[3\]\]; expected pairs of whole numbers such as"),
        (
            {"pairs": "1:2,3"},
            'the file: pairs is "1:2,3"; expected pairs of whole numbers such as .* or 3:128,4:64 as a flag',
        ),
        ({"point": [1]}, r"the file: point is \[1\]; expected a list of 2 values"),
        ({"counts": {"x": -1}}, "the file: counts.x is -1; expected a whole number of at least 0"),
        ({"counts": {"x": 1 << 64}}, "the file: counts.x is 18446744073709551616; expected a whole number"),
        ({"parts": [{}, {"width": "3"}]}, r'the file: parts\[1\].width is "3"; expected a whole number'),
        ({"column": 1.5}, "the file: column is 1.5; expected a whole number or a string"),
        ({"flag": 1}, "the file: flag is 1; expected true or false"),
        ({"name": ["long"] * 50}, r'the file: name is \["long", .*\.\.\.; expected a string'),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        revive(Whole, {**plain(WHOLE), **change}, source="the file")
    with pytest.raises(WeightsError, match=message):
        revive(Whole, {**plain(WHOLE), **change}, source="the file", error=WeightsError)


def test_missing_fields() -> None:
    with pytest.raises(ConfigError, match=r"the file: part is missing; expected an object"):
        revive(Whole, {"name": "w"}, source="the file")
    with pytest.raises(ConfigError, match="the file: share is missing; expected a number from 0 to 1"):
        revive(Part, {"width": 3}, source="the file", complete=True)
    with pytest.raises(ConfigError, match=r"the content is null; expected an object"):
        revive(Part, None)


def test_files_of_other_tools_may_hold_more() -> None:
    assert revive(Whole, {"name": "w", "part": {"x": 1}, "y": 2}, ignore_unknown=True).name == "w"


def test_a_range_holds_for_dataclasses_made_in_python() -> None:
    @dataclass(frozen=True)
    class Checked:
        rate: Annotated[float, Range(above=0)] = 1.0
        kind: Literal["a", "b"] = "a"

        def __post_init__(self) -> None:
            check(self)

    assert Checked(rate=2).rate == 2
    with pytest.raises(ConfigError, match=r"^rate is 0; expected a number above 0$"):
        Checked(rate=0)
    with pytest.raises(ConfigError, match=r'^kind is "c"; expected one of a, b$'):
        Checked(kind="c")  # type: ignore[arg-type]


def test_the_last_source_wins_and_errors_name_theirs(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("width = 7\nshare = 1\n")
    assert combine(Part, (str(file), read_toml(file)), ("flags", {"width": 8, "share": None})) == Part(8, 1.0)
    file.write_text("width = 0\n")
    with pytest.raises(ConfigError, match=r"my\.toml: width is 0; expected"):
        combine(Part, (str(file), read_toml(file)), ("flags", {"width": 8}))
    with pytest.raises(ConfigError, match=r"^width 13 and share do not go together"):
        combine(Part, ("a", {"width": 13}), ("b", {"share": 0.1}))
    assert combine(Part, ("a", {"width": 13}), ("b", {"width": 1})) == Part(1)  # checked together at the end only


@pytest.mark.parametrize("value", [((1, 32), (2, 64)), ((3, 128),)])
def test_pairs_come_back_from_a_flag(value: tuple[tuple[int, int], ...]) -> None:
    assert revive(Whole, {"name": "w", "part": {}, "pairs": as_flag(value)}).pairs == value


def read(path: Path) -> Whole:
    marks = {"format": "whole", "version": 1}
    return read_json(path, Whole, what="the settings of a test", advice="make it again", marks=marks)


def test_marks_are_checked_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "whole.json"
    path.write_text(json.dumps({"format": "whole", "version": 1, **plain(WHOLE)}), encoding="utf-8-sig")
    assert read(path) == WHOLE
    path.write_text(json.dumps({"format": "whole", "version": 2, **plain(WHOLE)}))
    with pytest.raises(FormatError, match=r"whole\.json: version is 2; expected 1; make it again"):
        read(path)
    path.write_text(json.dumps({"format": "whole", **plain(WHOLE)}))
    with pytest.raises(FormatError, match="version is missing; expected 1"):
        read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"not JSON \(line 1: .*is the file complete\?; make it again"),
        (b'{"name": "w", ', r"not JSON \(line 1: "),
        (b"\xff\xfe{}", r"not JSON \(UnicodeDecodeError\)"),
        (b"[" * 200_000, r"not JSON \((RecursionError|line)"),
        (b'{"name": ' + b"9" * 5000 + b"}", r"not JSON \(ValueError\)"),
        (b"[1, 2]", r"the content is \[1, 2\]; expected an object"),
        (b'{"format": "whole", "version": 1, "name": "\\ud800"}', "part is missing"),
        (b'{"format": "\\ud800", "version": 1}', "format is .*; expected"),
        (b'{"format": "whole", "version": true}', "version is true; expected 1"),
        (b'{"format": "whole", "version": 1, "name": "w", "part": {"width": 1e400}}', "part.width is Infinity; exp"),
    ],
)
def test_damaged_files_are_one_clear_error(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "whole.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    str(caught.value).encode()  # can be printed


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FormatError, match=r"none\.json: no such file; expected the settings of a test; make it again"):
        read(tmp_path / "none.json")
    with pytest.raises(FormatError, match="cannot be read"):
        read(tmp_path)
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(FormatError, match=r"67,108,865 bytes; expected the settings of a test, which is at most"):
        read(large)
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff = 3")
    with pytest.raises(ConfigError, match=r"bad\.toml: not a TOML file"):
        read_toml(tmp_path / "bad.toml")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*plain(WHOLE), "width", "x"]) | st.text(), inner),
)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(list(plain(WHOLE))), JSON))
def test_whatever_json_holds_is_revived_or_refused(change: dict[str, Any]) -> None:
    content = json.dumps({**plain(WHOLE), **change})
    try:
        made = parse_json(content, Whole, source="the file")
    except ElmokitError:
        with pytest.raises(FormatError, match=r"^the file: .+"):
            parse_json(content, Whole, source="the file")
    else:
        assert repr(parse_json(json.dumps(plain(made)), Whole, source="it")) == repr(made)
