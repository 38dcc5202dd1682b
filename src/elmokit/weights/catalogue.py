"""Published models by name: `allennlp:original`, `nlpl:209`, `manylangs:fi`.

The table says where each lies, and which page or program names that address. Not one of the addresses could be tried
where this table was made; a model whose address has moved is fetched by hand and given as a file.
"""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from elmokit.errors import WeightsError

Input = Literal["words", "lemmas", "not stated"]

PETERS = "Peters et al. 2018, Deep contextualized word representations, NAACL (arXiv 1802.05365)"
CHE = "Che et al. 2018, Towards better UD parsing, CoNLL 2018 shared task (K18-2005); Fares et al. 2017 (W17-0237)"
FARES = "Fares et al. 2017, Word vectors, reuse, and replicability, NoDaLiDa (W17-0237)"
NORLM = "Kutuzov et al. 2021, Large-scale contextualised language modelling for Norwegian, NoDaLiDa (arXiv 2104.06546)"
RUSVECTORES = "Kutuzov and Kuzmenko 2017, WebVectors (rusvectores.org)"

ALLENNLP_PAGE = "allennlp.org/elmo; allennlp 0.9, commands/elmo.py"
FLAIR = "flair, embeddings/token.py (ELMoEmbeddings)"
MANYLANGS_PAGE = "README of github.com/HIT-SCIR/ELMoForManyLangs"
SEMEVAL = "README of github.com/akutuzov/semeval2020"
NORELMO = "wiki.nlpl.eu/Vectors/norlm/norelmo"
RUSVECTORES_PAGE = "rusvectores.org/en/models"
LISTING_PAGE = "wiki.nlpl.eu/Vectors/metadata (names the listing, 20.json)"

BUCKETS = (
    "https://allennlp.s3.amazonaws.com/models/elmo/",
    "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/",
)
NLPL = ("http://vectors.nlpl.eu/repository/20/", "http://vectors.nlpl.eu/repository/11/")
LISTING = "http://vectors.nlpl.eu/repository/20.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One published model."""

    name: str
    language: str  # ISO 639: two letters, three where there are no two
    about: str
    files: tuple[tuple[str, ...], ...]  # of each file, the addresses where it may lie
    source: str  # what names these addresses
    input: Input = "words"  # what it was trained on, and wants
    size: int | None = None  # megabytes to fetch, about
    licence: str = "not stated"
    cite: str = PETERS


def _allennlp(
    name: str, shape: str, about: str, size: int, *, language: str = "en", folder: str = "", weights: str = ""
) -> Entry:
    folder = folder or f"{shape}/"
    files = f"{folder}elmo_{shape}_options.json", weights or f"{folder}elmo_{shape}_weights.hdf5"
    return Entry(
        f"allennlp:{name}",
        language,
        about,
        tuple(tuple(bucket + file for bucket in BUCKETS) for file in files),
        FLAIR if folder.startswith("contributed") else ALLENNLP_PAGE,
        size=size,
    )


def _nlpl(
    number: int, language: str, about: str, source: str, *, input: Input = "words", cite: str = FARES, size: int = 0
) -> Entry:
    addresses = tuple(f"{place}{number}.zip" for place in NLPL)
    return Entry(f"nlpl:{number}", language, about, (addresses,), source, input, size or None, cite=cite)


LARGE = "2x4096_512_2048cnn_2xhighway"
# Code, the repository's number, name; all from the page named above, one zip each.
LANGUAGES = """
ar 136 Arabic; bg 137 Bulgarian; ca 138 Catalan; cs 139 Czech; cu 140 Old Church Slavonic; da 141 Danish; de 142 German;
el 143 Greek; en 144 English; es 145 Spanish; et 146 Estonian; eu 147 Basque; fa 148 Persian; fi 149 Finnish;
fr 150 French; ga 151 Irish; gl 152 Galician; grc 153 Ancient Greek; he 154 Hebrew; hi 155 Hindi; hr 156 Croatian;
hu 157 Hungarian; id 158 Indonesian; it 159 Italian; ja 160 Japanese; ko 161 Korean; la 162 Latin; lv 163 Latvian;
nl 164 Dutch; nb 165 Norwegian Bokmål; nn 166 Norwegian Nynorsk; pl 167 Polish; pt 168 Portuguese; ro 169 Romanian;
ru 170 Russian; sk 171 Slovak; sl 172 Slovene; sv 173 Swedish; tr 174 Turkish; ug 175 Uyghur; uk 176 Ukrainian;
ur 177 Urdu; vi 178 Vietnamese; zh 179 Chinese, traditional
"""


def _manylangs(row: str) -> Entry:
    code, number, name = row.split(maxsplit=2)
    addresses = tuple(f"{place}{number}.zip" for place in reversed(NLPL))
    about = f"{name}, Wikipedia and web, 20 million words"
    return Entry(f"manylangs:{code}", code, about, (addresses,), MANYLANGS_PAGE, licence="MIT (of the code)", cite=CHE)


TABLE: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        _allennlp("small", "2x1024_128_2048cnn_1xhighway", "1 Billion Word Benchmark, 13.6 million parameters", 54),
        _allennlp("medium", "2x2048_256_2048cnn_1xhighway", "1 Billion Word Benchmark, 28.0 million parameters", 112),
        _allennlp("original", LARGE, "1 Billion Word Benchmark, 93.6 million parameters: that of the paper", 374),
        _allennlp("5.5B", f"{LARGE}_5.5B", "Wikipedia and news, 5.5 billion tokens, 93.6 million parameters", 374),
        _allennlp(
            "pubmed",
            LARGE,
            "PubMed abstracts, 93.6 million parameters",
            374,
            folder="contributed/pubmed/",
            weights=f"contributed/pubmed/elmo_{LARGE}_weights_PubMed_only.hdf5",
        ),
        _allennlp(
            "pt", "pt", "Portuguese Wikipedia, 93.6 million parameters", 374, language="pt", folder="contributed/pt/"
        ),
        _nlpl(195, "ru", "Russian Wikipedia and National Corpus", RUSVECTORES_PAGE, cite=RUSVECTORES),
        _nlpl(196, "ru", "Russian Wikipedia and National Corpus", RUSVECTORES_PAGE, input="lemmas", cite=RUSVECTORES),
        _nlpl(201, "de", "German", SEMEVAL, input="not stated"),
        _nlpl(202, "sv", "Swedish", SEMEVAL, input="not stated"),
        _nlpl(203, "la", "Latin", SEMEVAL, input="not stated"),
        _nlpl(209, "en", "English", SEMEVAL, input="not stated"),
        _nlpl(210, "no", "Norwegian Wikipedia 2020, 160 million words", NORELMO, input="lemmas", cite=NORLM),
        _nlpl(211, "no", "Norwegian Wikipedia 2020, 160 million words", NORELMO, cite=NORLM),
        _nlpl(212, "ru", "Araneum, Russian web", RUSVECTORES_PAGE, input="lemmas", cite=RUSVECTORES, size=1500),
        _nlpl(217, "no", "NorELMo30: Wikipedia and Norsk Aviskorpus, 30,000 output words", NORELMO, cite=NORLM),
        _nlpl(218, "no", "NorELMo100: Wikipedia and Norsk Aviskorpus, 100,000 output words", NORELMO, cite=NORLM),
        *(_manylangs(row) for row in LANGUAGES.strip().replace("\n", " ").split("; ")),
    )
}
FAMILIES = tuple(dict.fromkeys(name.partition(":")[0] for name in TABLE))


def is_name(name: str) -> bool:
    """Whether a name is one of the catalogue's kind: `allennlp:...`, `nlpl:...`, `manylangs:...`."""
    return name.partition(":")[0] in FAMILIES and ":" in name


def find(name: str) -> Entry:
    """The model of a name. Any number of NLPL's repository will do, in the table or not."""
    if name in TABLE:
        return TABLE[name]
    family, _, rest = name.partition(":")
    if family == "nlpl" and rest.isascii() and rest.isdigit():
        return _nlpl(int(rest), "", "not in the table", LISTING_PAGE, input="not stated")
    known = [known for known in TABLE if known.startswith(f"{family}:")]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    raise WeightsError(
        f"no model {name!r} in the catalogue; "
        + (f"did you mean {near[0]}? " if near else "")
        + f"`elmokit models --remote` lists them, as {', '.join(known[:4])}"
    )


def places_of(address: str) -> tuple[str, ...]:
    """All addresses of the file that has this one, this one first: older programs name hosts that may be gone."""
    known = (places for entry in TABLE.values() for places in entry.files if address in places)
    return tuple(dict.fromkeys((address, *next(known, ()))))


# NLPL's listing has language codes of three letters.
CODES = """
ara:ar bul:bg cat:ca ces:cs chu:cu dan:da deu:de ell:el eng:en est:et eus:eu fas:fa fin:fi fra:fr gle:ga glg:gl heb:he
hin:hi hrv:hr hun:hu ind:id isl:is ita:it jpn:ja kor:ko lat:la lav:lv lit:lt nld:nl nno:nn nob:nb nor:no pol:pl por:pt
ron:ro rus:ru slk:sk slv:sl spa:es swe:sv tur:tr uig:ug ukr:uk urd:ur vie:vi zho:zh
"""
SHORT = dict(pair.split(":") for pair in CODES.split())


def read_listing(listing: Any) -> list[Entry]:
    """The ELMo models of NLPL's listing that the table does not have. What is not as described is left out."""
    if not isinstance(listing, dict):
        raise WeightsError(
            f"{LISTING}: a {type(listing).__name__}, expected an object of models, corpora and algorithms"
        )
    algorithms = {row["id"]: str(row.get("name", "")) for row in _rows(listing.get("algorithms"))}
    corpora = {row["id"]: row for row in _rows(listing.get("corpora"))}
    found = []
    for model in _rows(listing.get("models")):
        name = algorithms.get(_first(model.get("algorithm")), "")
        if "elmo" in name.lower() and str(model["id"]).isdigit() and f"nlpl:{model['id']}" not in TABLE:
            told = [corpora[k] for k in _all(model.get("corpus")) if k in corpora]
            found.append(_listed(int(model["id"]), told))
    return found


def _listed(number: int, corpora: list[dict[str, Any]]) -> Entry:
    about = " and ".join(str(corpus["description"]) for corpus in corpora if corpus.get("description"))
    language = str(next((corpus["language"] for corpus in corpora if corpus.get("language")), ""))
    lemmas = {corpus.get("lemmatized") for corpus in corpora}
    input: Input = "lemmas" if lemmas == {True} else "words" if lemmas == {False} else "not stated"
    return _nlpl(number, SHORT.get(language, language), about or "no description", LISTING, input=input)


def _rows(section: Any) -> Iterator[dict[str, Any]]:
    for row in section if isinstance(section, list) else ():
        if isinstance(row, dict) and isinstance(row.get("id"), (int, str)):
            yield row


def _all(value: Any) -> Iterable[Any]:
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, (int, str))]


def _first(value: Any) -> Any:
    return next(iter(_all(value)), None)
