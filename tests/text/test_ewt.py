"""The English tokenizer against a treebank, with the benchmark's own reader."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from elmokit.text import load_tokenizer

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "tokenizer.py"


@pytest.fixture(scope="module")
def tokenizer_benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tokenizer_benchmark", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_words_of_a_range_share_its_surface(tokenizer_benchmark: ModuleType) -> None:
    rows = [["1", "I"], ["2-3", "don't"], ["2", "do"], ["3", "n't"], ["3.1", "go"], ["4", "."]]
    assert tokenizer_benchmark.word_spans("I don't.", rows) == [(0, 1), (2, 4), (4, 7), (7, 8)]


def test_f1_on_dev(tokenizer_benchmark: ModuleType, shared: Path) -> None:
    sentences = list(tokenizer_benchmark.read_gold(shared / "eval" / "pos-ewt" / "en_ewt-ud-dev.conllu.xz"))
    tokenizer = load_tokenizer("english")
    assert tokenizer_benchmark.score_tokens(tokenizer, sentences, Counter()).f1 >= 99
    assert tokenizer_benchmark.score_sentences(tokenizer, sentences).f1 >= 85
