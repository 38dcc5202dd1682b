"""Tokenised text."""

from elmokit.text import load_tokenizer


def test_a_line_is_a_sentence() -> None:
    sentences = load_tokenizer("whitespace").split("do n't -LRB- go\n\n  Mr.\tSmith . \r\n\n")
    assert [s.tokens for s in sentences] == [("do", "n't", "-LRB-", "go"), ("Mr.", "Smith", ".")]
    assert [s.text for s in sentences] == ["do n't -LRB- go", "Mr.\tSmith ."]
    assert [s.start for s in sentences] == [0, 19]
    assert sentences[1].offsets == ((0, 3), (4, 9), (10, 11))


def test_tokenize_takes_all_lines() -> None:
    assert load_tokenizer("whitespace").tokenize(" a\nb\u00a0c ").tokens == ("a", "b", "c")
