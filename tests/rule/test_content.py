"""Any JSON value has a text, or has none that could be written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from strategies import any_texts, any_values, containers, numbers, texts

from worker.rule.content import MAX_DEPTH, scalar_to_text, to_text
from worker.rule.lexemes import Json, Number, read

# Ours: each has broken something somewhere.
NAUGHTY = [
    *("null", "undefined", "NaN", "true", "0", "-0", "1e400", "\\", "\\\\u0041", '"', "'", "`", "%s%n", "{0}", "${x}"),
    *("' OR ''='", "--", "/* */", "<b>&amp;</b>", "</script>", "]]>", "../../x", "C:\\new", "{}", "[]", '{"a": 1}'),
    *("a\0b", "\0", "\x7f", "\x1b[31m", " ", "\t", "\r\n", "\n", "\x0b\x0c", "\x85", "\xa0", "\u2028", "\u2029"),
    *(
        "\u200b",
        "\u2060",
        "\ufeff",
        "\ufffe",
        "\uffff",
        "\ufffd",
        "\xad",
        "e\u0301",
        "\xe9",
        "\ufb01",
        "\u212b",
        "\xc5",
    ),
    *("ẞß", "İı", "Ωά", "नि", "กำ", "\u1112\u1161\u11ab", "日本語", "שלום", "\u202eabc\u202c"),
    *("👩\u200d🔬", "🏴\U000e0067\U000e007f", "✌🏽", "\U0010ffff", "\U0001d4b3", "\U000f0000", "Z\u0351\u036b\u0343"),
]


@given(texts)
def test_text_survives(text: str) -> None:
    """A string is taken unchanged, code point for code point."""
    assert to_text(text) == text


@pytest.mark.parametrize("text", NAUGHTY)
def test_naughty_text_survives(text: str) -> None:
    """So is one that was made to break things, alone and inside an array."""
    assert to_text(text) == text
    assert json.loads(to_text([text]) or "") == [text]


@given(numbers)
def test_numbers_keep_their_digits(number: Number) -> None:
    """A number's text is what its source says, and a plain string."""
    text = to_text(number)
    assert text == str(number)
    assert type(text) is str


@pytest.mark.parametrize(("value", "text"), [(None, ""), (True, "true"), (False, "false")])
def test_words(value: bool | None, text: str) -> None:  # noqa: FBT001 (a JSON value, not a flag)
    """Null has no text, a boolean its JSON word."""
    assert to_text(value) == text


@given(containers)
def test_arrays_and_objects_are_json_text(value: Json) -> None:
    """An array or object becomes JSON text that says the same, digits included."""
    assert read(to_text(value) or "") == value


@given(any_texts)
def test_lone_surrogates_have_no_text(text: str) -> None:
    """Exactly the strings without a lone surrogate can be written."""
    writable = not any("\ud800" <= character <= "\udfff" for character in text)
    assert scalar_to_text(text) == (text if writable else None)
    assert (to_text([text]) is not None) == writable
    assert (to_text({text: None}) is not None) == writable


@given(any_values)
def test_any_value_has_utf8_or_none(value: Json) -> None:
    """Whatever text comes out has UTF-8."""
    text = to_text(value)
    assert text is None or text.encode().decode() == text


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_depth(opening: str, closing: str) -> None:
    """A depth of 900 must come out, ours goes on to 1024, and one more is refused."""
    for depth in (900, MAX_DEPTH):
        source = f"{opening * depth}0{closing * depth}"
        assert to_text(read(source)) == source
    for depth in (MAX_DEPTH + 1, 100_000):
        assert to_text(read(f"{opening * depth}0{closing * depth}")) is None
