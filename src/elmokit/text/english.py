"""English: tokens in the manner of the Penn Treebank as the English Web Treebank (UD EWT) applies it, and sentences.

Nothing is normalised: every token is a slice of the text, and together the tokens hold every character but spaces.

- Contractions and possessives are split: do n't, can not, I 'm, dog 's, dogs ', gon na, 't was.
- Hyphens: a compound is split and the hyphen is a token of its own (well - known, 15 - year - old, Jean - Paul), but a
  prefix that is no word by itself stays on (non-stop, e-mail, co-founder, mid-July), and so do telephone numbers and
  dates (713-853-3989, 2001-09-11). Dashes are tokens of their own everywhere.
- A word of letters with an inner apostrophe is one token (o'clock, O'Neill, Shi'ite), as are numbers with separators
  (1,200.50, 7:30, 9/11), ordinals, abbreviations with their stop (Mr., U.S., p.m.), initials, web and mail addresses,
  file names, emoticons, emoji with their modifiers, and runs of one mark (..., --, !!, ***). Currency signs, per cent
  signs and units stand alone (US$ 20 m, 5 %).
"""

import re
from functools import cache

from elmokit.text.abbreviations import ABBREVIATIONS
from elmokit.text.english_sentences import sentence_spans
from elmokit.text.sentence import Sentence
from elmokit.text.unicode import EMOJI, MARKS


class EnglishTokenizer:
    """Penn Treebank tokens and sentences of English. Line breaks: see `english_sentences`."""

    name = "english"
    version = 1

    def tokenize(self, text: str) -> Sentence:
        """One sentence, whatever it contains, with offsets into `text`."""
        return Sentence.cut(text, map(re.Match.span, token_pattern().finditer(text)))

    def split(self, text: str) -> list[Sentence]:
        """A paragraph or document as its sentences."""
        find, span = token_pattern().finditer, re.Match.span
        sentences = []
        for start, end in sentence_spans(text):
            part = text[start:end]
            sentences.append(Sentence.cut(part, map(span, find(part)), start=start))
        return sentences


# Words written as one that the treebank takes apart, as "first part|second part".
_FUSED = (
    "can|not gon|na wan|na got|ta out|ta sort|a gim|me lem|me "
    "do|nt does|nt did|nt is|nt was|nt are|nt were|nt has|nt have|nt had|nt would|nt could|nt should|nt ai|nt "
    "that|s what|s you|re they|re"
).split()
# Prefixes that keep their hyphen.
_PREFIXES = (
    "anti|arch|bi|co|counter|cross|de|e|ex|extra|hyper|inter|intra|macro|mega|meta|micro|mid|mini|multi|neo|non|over|"
    "para|post|pre|pro|pseudo|psycho|quasi|re|semi|socio|sub|super|trans|tri|ultra|un|under"
)
_DROPPED_G = "(?:any|every|no|some)thin|(?:be|com|do|giv|go|gett|hav|kill|know|liv|look|lov|mak|runn|say|sitt|talk|tak|tell|think|try|wait|walk|work|morn|even|darl|cook)in"
_UNITS = "[ap]\\.?m\\.?|[kmb]|bn|mm|cm|km|kg|mg|ml|ft|lbs?|oz|hz|[km]hz|[kmg]b|mph|kph|hrs?|mins?|secs?|sq|[x]"
_TOP_LEVEL = "com|org|net|edu|gov|mil|int|info|biz|io|co|uk|us|ca|au|de|fr|eu|jp|in|ru|ch|nl|nz|tv"
_FILE_TYPES = "docx?|xlsx?|pptx?|pdf|txt|html?|jpe?g|gif|png|zip|exe|mp3|mp4|avi|wav|csv|xml|php|asp"


@cache
def token_pattern() -> re.Pattern[str]:
    """The one expression that finds the next token. Every unbounded repeat is possessive or anchored: linear time."""
    fused = [tuple(pair.split("|")) for pair in _FUSED]
    whole = "|".join(a + b for a, b in fused)
    halves = "|".join(f"{a}(?={b}\\b)" for a, b in fused)
    quote = "['’]"
    letters = "[^\\W\\d_]"
    run = f"[^\\W_]++(?:[{MARKS}]++[^\\W_]*+|_++[^\\W_]++)*+"
    clitic = f"(?i:s|m|re|ve|ll|d|t)(?![^\\W_])"
    after = "(?![^\\W_])"  # the end of a word
    parts = [
        # The commonest words, at once.
        f'(?!(?i:{whole})\\b)[A-Za-z]++(?=[\\s,;!?")]|\\Z)',
        '[,"“”]',
        f"(?i:{halves})",
        # Addresses and files.
        '(?i:(?:https?|ftp)://|www\\.)[^\\s<>"“”]{0,2000}(?:\\([^\\s()]{1,200}\\)|[^\\s<>"“”.,;:!?\'’()\\[\\]{}*…])',
        "(?i:mailto:)?[\\w.+%-]{1,64}+@[^\\W_](?:[\\w.-]{0,250}[^\\W_])?",
        f'(?:[\\w-]{{1,60}}+\\.){{1,6}}(?i:{_TOP_LEVEL})\\b(?:/[^\\s<>"“”]{{0,500}}[^\\s<>"“”.,;:!?\'’()\\[\\]])?(?![\\w@]|\\.\\w)',
        f"[\\w-]{{1,60}}+\\.(?i:{_FILE_TYPES})\\b",
        # Contractions.
        f"[A-Za-z]{{1,12}}?(?=(?i:n{quote}t){after})",
        f"(?i:n{quote}t){after}",
        f"(?<=[^\\W_])[`'’](?i:s|m|re|ve|ll|d){after}",
        f"{quote}(?i:s|m|re|ve|ll|d)(?![\\w'’])",
        f"{quote}t(?=(?i:is|was|were|will|would){after})",
        f"{quote}(?i:em|til|till|cause|bout|n|round|neath|gainst){after}",
        f"{quote}\\d\\ds?{after}",
        f"(?i:{_DROPPED_G}){quote}{after}",
        # Abbreviations.
        f"(?:{letters}\\.){{2,10}}",
        f"(?:{ABBREVIATIONS})\\.(?!\\.)",
        f"{letters}\\.(?=\\s+[^\\W\\d_a-z])(?<!I\\.)",
        "[A-Za-z]{1,3}&[A-Za-z]{1,2}\\b",
        "[A-Za-z]/[A-Za-z]\\b",
        "w/",
        "(?:US|U|C|A|HK|NZ)\\$+",
        # Numbers.
        "\\+?\\d{1,4}(?:[-.]\\d{2,4}){2,3}(?![\\w-])|\\d{3}[-/]\\d{3}-\\d{4}(?!\\w)|\\d{3}-\\d{4}(?!\\w)|\\d{5}-\\d{4}(?!\\w)",
        f"(?:[+]|(?<![\\w.)])\\.)?\\d++(?:[.,:/]\\d++)*+(?:(?={_UNITS}{after})|(?i:st|nd|rd|th){after}|{quote}?s{after}|{run})?+",
        # Words.
        f"(?i:{_PREFIXES})-(?={letters})(?:{run})(?:{quote}(?!{clitic}){run})*+",
        f"{run}(?:{quote}(?!{clitic}){run})*+",
        # Marks.
        "[:;=]['’o-]?[)(DPp|](?!\\w)|:-?/(?!/)|[(]:|\\^_\\^|-_-|<3",
        "\\.{2,}+|…+|[!?]{2,}+|([-=*#+~_`'’<>$/\\\\|^])\\1++",
        f"{EMOJI}",
        f"\\S[{MARKS}]*+",
    ]
    return re.compile("|".join(parts))
