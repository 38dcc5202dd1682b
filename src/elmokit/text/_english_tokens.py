"""The one expression that finds the next English token; `english` says what it cuts and why.

Plain words before a space or a comma match the first branch; the others go through look-aheads that let only a word
before an apostrophe try the contractions, and so on. It is linear on any input: repeats are possessive or bounded.
"""

import re
from collections.abc import Iterable
from functools import cache

from elmokit.text.unicode import emoji, marks

# Abbreviations that keep their stop, by what may follow them; `english` ends sentences by them too.
# A name or a number follows: no sentence ends here.
TITLES = (
    "Mr Mrs Ms Messrs Mme Mlle Dr Drs Prof Rev Hon Gen Col Maj Capt Cpt Cmdr Cdr Lt Sgt Cpl Pvt Adm Brig Sen Sens Rep "
    "Reps Gov Pres Supt Insp Amb Sec Fr Br Bp Msgr St Ste Mt Ft Pt Spec Attn"
)
MONTHS = "Jan Feb Mar Apr Jun Jul Aug Sept Sep Oct Nov Dec"
DAYS = "Mon Tue Tues Wed Thu Thur Thurs Fri Sat Sun"
# Words of their own unless a number follows.
BEFORE_NUMBER = "No Nos no nos Op op Art art Ph Para Sc Act Bk"
# Something follows within the sentence.
INNER = (
    "vs v cf viz ca approx esp ext incl eg ie ed eds vol vols pp p ch chap fig figs Fig Figs Vol Vols Ch Chap Ed Eds "
    "Esp Est est Ext Tel orig misc"
)
# May end a sentence.
CLOSING = (
    "Inc Corp Co Ltd Bros Jr Sr Esq Ave Blvd Rd Bldg Dept Univ Assn etc al lb lbs oz yrs mins hrs max min "
    "Ala Ariz Ark Calif Colo Conn Del Fla Ga Kan Ky La Md Mich Minn Mo Mont Neb Nev Okla Ore Pa Tenn Tex Va Vt Wis "
    "Wyo Que Ont"
)
ABBREVIATIONS = f"{TITLES} {MONTHS} {INNER} {CLOSING}"
# Words that begin sentences and hardly ever follow an abbreviation within one.
STARTERS = (
    "A After All Although An And Another Are As At Because Before Both But By Can Did Do Does During Each Even For "
    "From Has Have He Her Here His How However I If In Is It Its Just Let Many May Maybe More Most My No Not Now On "
    "Once One Only Or Other Our Please She Since So Some Such Thanks That The Their Then There These They This Those "
    "Though Through To Today Under Until Was We Well Were What When Where Which While Who Why Will With Would Yes Yet "
    "You Your"
)
# Words as short as abbreviations that are none.
SHORT = "ago all are be day do go her him in is it me not now off on one out so too up us was way yet you"

# Words written as one that the treebank takes apart.
_FUSED = (
    *(("can", "not"), ("gon", "na"), ("wan", "na"), ("got", "ta"), ("out", "ta"), ("gim", "me"), ("lem", "me")),
    *((verb, "nt") for verb in ("ai", "did", "do", "does", "had", "has", "have", "is", "was", "were")),
    *((verb, "nt") for verb in ("are", "could", "should", "would")),
    *(("that", "s"), ("what", "s"), ("there", "s"), ("you", "re"), ("they", "re")),
)
# Prefixes that keep their hyphen.
_PREFIXES = (
    "anti arch bi co counter cross de ex extra hyper inter intra macro mega meta micro mid mini multi neo non over "
    "para post pre pro pseudo psycho quasi re semi socio sub super trans tri ultra un under"
)
# Where going is goin': the stems of a few common verbs, so that a closing quote after "again" stays a quote.
_DROPPED_G = (
    "anyth be com cook darl do even everyth fight gett giv go hav kill know liv look lov mak morn noth play putt runn "
    "say sitt someth stand tak talk tell think try wait walk work"
)
_ELIDED = "bout cause em gainst mid mongst neath round til till"  # 'em, 'til
_UNITS = "(?i:[ap]\\.?m|[kmbtx]|bn|mm|cm|km|kg|mg|ml|ft|lbs?|oz|[kmg]?hz|[kmgt]b|mph|hrs?|hh|sq)(?![^\\W_])|[a-z]{3}"
_DEGREES = "(?:Ph|Ed|Sc|Litt|LL)\\.D|[BM]\\.(?:Sc|Ed|Phil|Litt)|LL\\.[BM]"
_TOP_LEVEL = "com|org|net|edu|gov|mil|int|info|biz|io|co|uk|us|ca|au|de|fr|eu|jp|in|ru|ch|nl|nz|tv"
_FILES = "docx?|xlsx?|pptx?|pdf|txt|html?|jpe?g|gif|png|zip|exe|mp3|mp4|avi|wav|csv|xml|php|asp|url|js|json|css|py"


def _any_of(words: Iterable[str]) -> str:
    """An expression for any of the words, by first letter, so that most texts are turned away at once."""
    rests: dict[str, list[str]] = {}
    for word in words:
        rests.setdefault(word[0], []).append(re.escape(word[1:]))
    return "|".join(f"{letter}(?:{'|'.join(rest)})" for letter, rest in rests.items())


def _in_any_case(words: Iterable[str]) -> list[str]:
    """The words in small letters, with a capital and in capitals; quicker than ignoring case."""
    return list(dict.fromkeys(form for word in words for form in (word, word.capitalize(), word.upper())))


@cache
def token_pattern(*, ascii_only: bool = False) -> re.Pattern[str]:
    """Compiled on first use; text of ASCII alone has one of its own, which takes half the time to make."""
    letter, edge = "[^\\W\\d_]", "(?![^\\W_])"  # edge: a word ends here
    quote = "['’]"
    final = "\\.(?=[\\s\"”'’)\\]]*+\\Z)"  # the stop that ends the text
    inner = "" if ascii_only else f"[{marks()}]++[^\\W_]*+|"
    run = f"[^\\W_]++(?>(?:{inner}_++[^\\W_]++)*)"
    clitic = f"(?i:s|m|re|ve|ll|d|t){edge}"
    word = f"{run}(?>(?:{quote}(?!{clitic}){run})*)"
    fused = _any_of(_in_any_case(a + b for a, b in _FUSED))
    halves = "|".join(
        f"{first}(?={second}\\b)" for a, b in _FUSED for first in _in_any_case([a]) for second in _in_any_case([b])
    )

    contracted = (
        f"[A-Za-z]{{1,12}}?(?=(?i:n{quote}t){edge})"
        f"|(?i:n{quote}t){edge}"
        f"|(?:{_any_of(_in_any_case(_DROPPED_G.split()))})(?i:in){quote}{edge}"
    )
    address = (
        "(?i:(?:https?|ftp)://|www\\.)(?:[^\\s<>\"“”()]|\\([^\\s<>()]{0,200}\\)){1,2000}(?<![.,;:!?'’\\[\\]{}*…])"
        "|(?i:mailto:)?[\\w.+%-]{1,64}+@[^\\W_](?:[\\w.-]{0,250}[^\\W_])?"
        f'|(?:[\\w-]{{1,60}}+\\.){{1,6}}(?i:{_TOP_LEVEL})\\b(?:/[^\\s<>"“”]{{0,500}}[^\\s<>"“”.,;:!?\'’()\\[\\]])?'
        "(?![\\w@]|\\.\\w)"
        f"|[\\w-]{{1,60}}+\\.(?i:{_FILES})\\b"
        "|[a-z]{1,40}+(?>(?:\\.[a-z]{2,40}+){2,9})"
    )
    abbreviated = (
        f"(?:{letter}(?>(?:\\.{letter}){{1,9}})|{_DEGREES}){edge}(?:(?!{final})\\.)?"
        f"|(?:{_any_of(ABBREVIATIONS.split())})(?!{final})\\.(?!\\.)"
        f"|(?:{_any_of(BEFORE_NUMBER.split())})\\.(?=\\s*\\d)"
        f"|(?:{_any_of(DAYS.split())})\\.(?=,|\\s+(?:\\d|{_any_of(MONTHS.split())}))"
        f"|(?!I){letter}(?!{final})\\.(?=[\\s,)\\]])"
    )
    joined = "[A-Za-z]{1,3}&[A-Za-z]{1,2}\\b|[A-Za-z]/[A-Za-z]\\b|w/|(?:US|U|C|A|HK|NZ)\\$|C\\+\\+|[CF]#(?!\\w)"
    hyphenated = (
        f"(?<!-)(?!(?i:over)-(?i:the)-)(?:(?:{_any_of(_in_any_case(_PREFIXES.split()))})-(?=[^\\W_])|[Ee]-(?=[a-z]{{2}}))"
        f"{word}|{letter}++-(?:esque|wise){edge}"
    )
    number = (
        "\\+?\\d{1,4}(?:[-.]\\d{2,4}){2,3}(?![\\w-])"  # telephone numbers and dates
        "|\\d{3}[-/]\\d{3}-\\d{4}(?!\\w)|\\d{3}-\\d{4}(?!\\w)|\\d{5}-\\d{4}(?!\\w)"
        f"|\\+?\\d++(?>(?:[.,:/]\\d++)*)(?>(?:(?={_UNITS})|(?:(?<=0){quote})?s{edge}|{run})?)"
    )
    apostrophe = (
        f"(?<=[^\\W_])[`'’](?i:s|m|re|ve|ll|d){edge}"
        f"|{quote}(?:(?i:s|m|re|ve|ll|d)(?![\\w'’])"
        f"|(?i:t)(?=(?i:is|was|were|will|would){edge})"
        f"|(?i:{'|'.join(_ELIDED.split())}){edge}|n{quote}?{edge}"
        f"|(?<!\\d.)\\d\\ds?{edge})"
    )
    marked = (
        "[:;=]['’o-]?[)(DPpO|](?!\\w)|:-?/(?!/)|[(]:|\\^_\\^|-_-|<3"
        "|<?[-=]{1,60}+>|<[-=]{1,60}+|[.…]{2,}+|[!?]{2,}+|[‘’]{2}|([-=*#+~_`'<>$/\\\\|^])\\1++"
    )
    return re.compile(
        f'(?!(?:{fused})\\b)[A-Za-z]++(?=[\\s,;!?")]|\\Z)'
        '|[,"“”]'
        f"|(?={letter})(?:"
        f"(?=[A-Za-z]++{quote})(?:{contracted})"
        f"|{halves}"
        f"|(?=[\\w-]{{1,80}}+[.@:%+]++[\\w/-])(?:{address})"
        f"|(?={letter}++\\.)(?:{abbreviated})"
        f"|(?=[A-Za-z]{{1,3}}[&/$+#])(?:{joined})"
        f"|(?={letter}++-)(?:{hyphenated})"
        f"|{word})"
        f"|(?=[\\d+])(?:(?=[\\w.+%-]{{1,64}}+@|[\\w-]{{1,60}}+\\.{letter})(?:{address})|{number})"
        f"|{run}"
        f"|(?=['’`])(?:{apostrophe})"
        f"|&(?:c{edge}(?:(?!{final})\\.)?|[a-z]{{2,8}};|#\\d{{2,6}};)"
        f"|(?<![\\w.)])\\.\\d++|\\.(?:{_FILES}){edge}"
        f"|(?![^\\W_])(?:{marked}{'' if ascii_only else '|' + emoji()})"
        f"|\\S{'' if ascii_only else f'[{marks()}]*+'}"
    )
