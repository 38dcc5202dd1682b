"""What a model's files in our own format say and how they must fit together; read without torch.

`own` reads the weights as tensors, `elmokit.lite` as arrays.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from elmokit.chars import BOS, EOS, N_BYTE_IDS, UNK, CodecSpec
from elmokit.config import Count, Positive, Range, checksum_of, read_json, revive, shorten
from elmokit.errors import InputError, WeightsError
from elmokit.native.numbers import GROUP
from elmokit.shape import BiLMConfig, parameter_shapes
from elmokit.text import DeferredTokenizer, Tokenizer, load_tokenizer
from elmokit.weights.symbols import read_symbols

BUNDLED = Path(__file__).parents[1] / "models"  # one folder per model, in elmokit's own format
DEFAULT = "en"
Format = Literal["elmokit", "official", "manylangs"]
FORMAT, VERSION = "elmokit", 2  # 2: four bits, which 0.1.0 cannot read; all else is written as 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
SOFTMAX = "softmax."
UNFIT = "the save may have been interrupted, or files of two models lie here: save or fetch it again"
UNCHECKED = ("extra", "checksum")  # fields of config.json that its checksum leaves out
SCALE = ".scale"
FLOAT_NAMES = ("float16", "bfloat16", "float32", "float64")
WORD_MARKS = ("<oov>", "<bos>", "<eos>")  # what ELMoForManyLangs' dictionaries must name
LARGEST_WEIGHT = 1e6  # in trained models about 10; a flipped bit of an exponent makes 1e9 to 1e38
CHARACTER_MARKS = ("<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>")


class TokenizerSpec(NamedTuple):
    """Which tokenizer a model was trained with; running it with another is refused unless asked for."""

    name: str
    version: int


@dataclass(frozen=True, slots=True)
class SymbolList:
    """A list of symbols beside config.json."""

    file: Literal["vocab.txt", "words.txt", "characters.txt"]
    size: Count
    digest: str


@dataclass(frozen=True, slots=True)
class StatedCodec:
    kind: Literal["bytes", "words", "dictionary"]
    boundary_tokens: bool = True
    words: SymbolList | None = None
    characters: SymbolList | None = None


@dataclass(frozen=True, slots=True)
class StatedSoftmax:
    words: Annotated[int, Range(1, 1_000_000_000)]
    cutoffs: tuple[Positive, ...] | None = None  # of an adaptive softmax


@dataclass(frozen=True, slots=True)
class StatedWeights:
    dtype: str
    digest: str
    checksums: dict[str, str] | None = None  # CRC-32 of each tensor; None: a model of 0.1.0


@dataclass(frozen=True, slots=True)
class Stated:
    """config.json, but for its format and version."""

    model: dict[str, Any]  # a BiLMConfig
    codec: StatedCodec
    weights: StatedWeights
    tokenizer: TokenizerSpec | None = None
    vocabulary: SymbolList | None = None
    softmax: StatedSoftmax | None = None
    origin: Literal["elmokit", "official", "manylangs"] = "elmokit"
    extra: dict[str, Any] | None = None
    checksum: str | None = None  # of the other fields but `extra`


class Described(NamedTuple):
    """What config.json says."""

    folder: Path
    stated: Stated
    config: BiLMConfig
    values: dict[str, Any]  # the whole file

    @property
    def tokenizer(self) -> TokenizerSpec | None:
        return self.stated.tokenizer

    @property
    def origin(self) -> Format:
        return self.stated.origin

    @property
    def source(self) -> str:
        return str(self.folder)

    def codec(self) -> CodecSpec:
        """With its lists, checked."""
        stated = self.stated.codec
        spec = CodecSpec(
            stated.kind,
            boundary_tokens=stated.boundary_tokens,
            words=None if stated.words is None else read_list(self.folder, stated.words),
            characters=None if stated.characters is None else read_list(self.folder, stated.characters),
        )
        check_codec(spec, self.config, str(self.folder))
        return spec

    def check_digest(self, found: str | None) -> None:
        """Refuses weights of another model; `found` is the digest that they carry."""
        if found != self.stated.weights.digest:
            raise WeightsError(f"{self.folder / WEIGHTS}: does not belong to the {CONFIG} beside it; {UNFIT}")

    def check_checksums(self, found: Mapping[str, str]) -> None:
        """Refuses weights that have changed; a model of 0.1.0 has no checksums."""
        stated = self.stated.weights.checksums
        for name in found if stated is not None else ():
            if found[name] != (stated or {}).get(name):
                raise WeightsError(
                    f"{self.folder / WEIGHTS}: '{name}' is not as it was saved (its checksum does not fit); fetch or "
                    "copy it again"
                )

    def check_itself(self) -> None:
        """Refuses a config.json that was changed after it was saved."""
        if self.stated.checksum not in (None, checksum_of(self.values, without=UNCHECKED)):
            raise WeightsError(
                f"{self.folder / CONFIG}: not as it was saved (its checksum does not fit); fetch or copy it again. If "
                "you changed it yourself, remove the field 'checksum'"
            )


def is_own_model(folder: Path) -> bool:
    """Whether a model in elmokit's own format was saved in this folder."""
    config = folder / CONFIG
    return config.is_file() and f'"format": "{FORMAT}"'.encode() in config.read_bytes()


def read_described(folder: Path) -> Described:
    """config.json, checked but for its lists and checksum."""
    path = folder / CONFIG
    values = read_json(path, dict[str, Any], error=WeightsError)
    if values.get("format") != FORMAT:
        raise WeightsError(
            f"{path}: not a model of elmokit (format is {shorten(values.get('format'))}, not '{FORMAT}')"
        )
    version = values.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise WeightsError(
            f"{path}: format version {shorten(version)}, this elmokit reads up to {VERSION}; install a newer one"
        )
    stated = revive(Stated, values, source=str(path), error=WeightsError, ignore_unknown=True)
    config = revive(BiLMConfig, stated.model, source=f"{path}: model", error=WeightsError, complete=True)
    return Described(folder, stated, config, values)


def read_list(folder: Path, mention: SymbolList) -> tuple[str, ...]:
    symbols = read_symbols(folder / mention.file)
    if digest_list(symbols) != mention.digest:
        raise WeightsError(
            f"{folder / mention.file}: {len(symbols)} lines, not the {mention.size} that {CONFIG} was saved with; "
            f"{UNFIT}"
        )
    return symbols


def digest_list(symbols: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(symbols).encode("utf-8", "surrogatepass")).hexdigest()


def check_shapes(found: Mapping[str, tuple[int, ...]], config: BiLMConfig, source: str) -> None:
    """Refuses shapes that are not exactly those of the config."""
    expected = parameter_shapes(config)
    for name, shape in expected.items():
        if name not in found:
            raise WeightsError(f"{source}: '{name}' is missing, expected a tensor of shape {shape}")
        if found[name] != shape:
            raise WeightsError(
                f"{source}: '{name}' has shape {found[name]}, expected {shape}; config and weights do not fit"
            )
    if unknown := sorted(found.keys() - expected.keys()):
        raise WeightsError(f"{source}: '{unknown[0]}' is not a weight of this model; config and weights do not fit")


def check_range(low: float, high: float, bad: Callable[[], tuple[int, int]], what: str) -> None:
    """Refuses NaN, infinity and magnitudes that no training leads to; `bad` counts what is not finite, and all."""
    if low >= -LARGEST_WEIGHT and high <= LARGEST_WEIGHT:
        return
    lost, size = bad()
    if lost:
        raise WeightsError(f"{what} has {lost} of {size} values NaN or infinite; the file is damaged")
    worst = low if -low > high else high
    raise WeightsError(
        f"{what} has a value of {worst:g}, but weights of a trained model lie within {LARGEST_WEIGHT:g}; the file is "
        "damaged: fetch or copy it again"
    )


def check_stored(tensors: Mapping[str, tuple[str, tuple[int, ...]]], source: str) -> None:
    """Refuses tensors (type and shape by name) that are neither floats, nor int8 with a scale per row, nor four bits
    with a scale per group."""
    for name, (dtype, shape) in tensors.items():
        kind, scale = tensors.get(name + SCALE, ("", ()))
        if dtype in FLOAT_NAMES and not kind:
            continue
        if kind not in FLOAT_NAMES:
            found = f" with scales of type {kind}" if kind else ""
            raise WeightsError(
                f"{source}: '{name}' has type {dtype}{found}, expected floats, or int8 with floats '{name}{SCALE}'"
            )
        fours = (*shape[:-1], 2 * shape[-1] // GROUP) if len(shape) > 1 and 2 * shape[-1] % GROUP == 0 else None
        if not (dtype == "int8" and scale == shape[: len(scale)]) and not (dtype == "uint8" and scale == fours):
            raise WeightsError(
                f"{source}: '{name}' is {dtype} of shape {shape} with scales of shape {scale}, expected int8 and one "
                f"scale per row, or four bits in uint8 and one scale for {GROUP} numbers"
            )


def check_codec(codec: CodecSpec, config: BiLMConfig, source: str) -> None:
    """Refuses a codec whose rows would point outside the model's tables or lack a mark it cannot do without."""
    tokens = config.tokens
    if codec.kind == "bytes":
        if tokens.word_dim or tokens.n_characters < N_BYTE_IDS:
            raise WeightsError(f"{source}: {tokens.n_characters} characters, expected {N_BYTE_IDS} and no word vectors")
        return
    marks = (BOS, EOS, UNK) if codec.kind == "words" else WORD_MARKS
    lists = (
        ("words", codec.words, tokens.n_words if tokens.word_dim else None, marks),
        ("characters", codec.characters, tokens.n_characters if tokens.char_dim else None, CHARACTER_MARKS),
    )
    for what, symbols, size, needed in lists:
        if symbols is None and (size is None or codec.kind == "words"):
            continue
        if symbols is None or size != len(symbols):
            found = "no" if symbols is None else len(symbols)
            raise WeightsError(f"{source}: {found} {what} listed, but the model has {size or 'no'} {what}")
        if missing := [mark for mark in needed if mark not in symbols]:
            raise WeightsError(f"{source}: {', '.join(missing)} missing from the list of {what}")


# Files of the older tools do not say how their text was cut. The official models read English; ManyLangs, anything.
DEFAULTS = {"elmokit": "english", "official": "english", "manylangs": "unicode"}


class Tokenized(Protocol):
    """What a model says of its tokenizer."""

    @property
    def tokenizer(self) -> TokenizerSpec | None: ...
    @property
    def origin(self) -> Format: ...
    @property
    def source(self) -> str: ...


def choose_tokenizer(model: Tokenized, given: str | Tokenizer | None, *, allow_other: bool) -> Tokenizer:
    """The model's own; or the one given, if it is the same, if the model names none, or if another is allowed."""
    own = model.tokenizer
    if given is None:
        if own is None:
            return load_tokenizer(DEFAULTS[model.origin])
        return DeferredTokenizer(own.name, own.version)
    if isinstance(given, str):  # its name alone means the version that the model has
        chosen = load_tokenizer(given, own.version if own is not None and given == own.name else None)
    else:
        chosen = given
    if own is not None and (chosen.name, chosen.version) != (own.name, own.version) and not allow_other:
        raise InputError(
            f"tokenizer {chosen.name!r} version {chosen.version} was given, but {model.source or 'the model'} "
            f"was trained with {own.name!r} version {own.version} and would see words it never met; leave tokenizer "
            f"out, give tokens instead of text, or pass allow_other_tokenizer=True"
        )
    return chosen


def bundled_models() -> list[str]:
    return sorted(path.parent.name for path in BUNDLED.glob("*/config.json"))
