"""English: tokens in the manner of the Penn Treebank as the English Web Treebank (UD EWT) applies it, and sentences.

Nothing is normalised: every token is a slice of the text, and together the tokens hold every character but spaces.

- Contractions and possessives are split: do n't, can not, I 'm, dog 's, dogs ', gon na, 't was; so are the ones
  written without an apostrophe that can be nothing else (did nt, they re).
- Hyphens: a compound is split and the hyphen is a token of its own (well - known, 15 - year - old, Jean - Paul), but a
  prefix that is hardly a word by itself stays on (non-stop, e-mail, co-founder, mid-July), and telephone numbers and
  dates are left whole (713-853-3989, 2001-09-11). Dashes are tokens of their own everywhere. This is the treebank's own
  practice; leaving compounds whole costs 0.6 points of token F1 on EWT dev.
- A word with an inner apostrophe is one token (o'clock, O'Neill, Shi'ite), as are numbers with separators (1,200.50,
  7:30, 9/11), ordinals and decades (20th, 1960s, '60s), initials and abbreviations with their stop (W., Mr., U.S.), web
  and mail addresses, file names, emoticons, emoji with their modifiers, and runs of one mark (..., --, !!, ***).
- A stop that ends the sentence is a token of its own even after an abbreviation: at 5 p.m .
- Currency signs, per cent signs and units stand alone: US$ 20 m, 5 %, 7:30 PM.
"""

import re

from elmokit.text.english_sentences import sentence_spans
from elmokit.text.english_tokens import token_pattern
from elmokit.text.sentence import Sentence, cut_all


class EnglishTokenizer:
    """Tokens as in the English Web Treebank; the module says how. Line breaks: see `english_sentences`."""

    name = "english"
    version = 1

    def tokenize(self, text: str) -> Sentence:
        """One sentence, whatever it contains, with offsets into `text`."""
        return Sentence.cut(text, map(re.Match.span, token_pattern().finditer(text)))

    def split(self, text: str) -> list[Sentence]:
        """A paragraph or document as its sentences; each is cut into the tokens that `tokenize` gives for its text."""
        return cut_all(text, sentence_spans(text), token_pattern())
