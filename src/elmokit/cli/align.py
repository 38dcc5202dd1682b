"""`elmokit align`: maps from one model's vectors into another's."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elmokit.cli.flags import Device, Json, Lines, LinesOption

if TYPE_CHECKING:
    from elmokit.analysis.align import Found, Translation
    from elmokit.analysis.anchors import Anchors
    from elmokit.analysis.retrieval import Retrieval
    from elmokit.encoders import Encoder

Corpus = Annotated[str, typer.Option(metavar="TEXT", help="Text (file, folder, pattern) or an index of this model.")]


def align(
    source: Annotated[str, typer.Argument(metavar="MODEL1", help="The model whose vectors are mapped.")],
    target: Annotated[str, typer.Argument(metavar="MODEL2", help="The model into whose space they are mapped.")],
    source_text: Corpus,
    target_text: Corpus,
    words: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Word pairs, two on a line, as seed; default: identical words and numbers."),
    ] = None,
    test_words: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Word pairs, two on a line, to test on; their words leave the seed."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Default: the folder aligned/MODEL2 inside MODEL1."),
    ] = None,
    same_text: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Text that both models read: is each word found again in the other model?"),
    ] = None,
    lexicon: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write each word of MODEL1, its translation and its score here."),
    ] = None,
    min_count: Annotated[int, typer.Option(help="Only words with this many occurrences.", min=1)] = 5,
    limit: Annotated[int, typer.Option(help="Words of each text, the most frequent.", min=10)] = 20_000,
    rounds: Annotated[int, typer.Option(help="Rounds of refinement at most; 0: the seed's map.", min=0)] = 5,
    test: Annotated[float, typer.Option(help="Share of the seed held out for the test.", min=0, max=0.9)] = 0.2,
    lines: LinesOption = Lines.paragraphs,
    json_output: Json = False,
    device: Device = "auto",
) -> None:
    """Map one model's vectors into another model's space, so that the vectors of both can be compared.

        elmokit align vi/model en --source-text vi.txt --target-text en.txt \\
          --words vi-en.txt
        elmokit embed text.txt -o vectors.h5 -m aligned:vi/model/aligned/en

    Each word's mean vector in its text is its anchor. From pairs of words (the seed), an orthogonal map is found for
    each layer. Words that are then each other's nearest become the next round's pairs. A part of the seed is held out
    to test how often a word's translation is the nearest word, or among the five nearest (by CSLS): by each layer's
    map, by all, and in the common space of the two, in which words alone can be compared. Identical words are names
    and numbers for the most part, so test words of another kind with --test-words.
    """
    from elmokit.analysis.align import AlignConfig, align_anchors, read_word_list
    from elmokit.analysis.retrieval import retrieve_tokens
    from elmokit.cli.inputs import read_inputs
    from elmokit.encoders import load_encoder
    from elmokit.formats import expand_inputs
    from elmokit.formats.atomic import write_text

    expand_inputs([text for text in (source_text, target_text) if not _indexed(text)])  # or an error
    config = AlignConfig(rounds=rounds, test=test, search_words=limit)
    pairs = None if words is None else read_word_list(words)
    test_pairs = [] if test_words is None else read_word_list(test_words)
    encoders = load_encoder(source, device=device), load_encoder(target, device=device)
    folder = output or _beside(source, target)
    first, second = (
        _anchors(encoder, text, lines=lines, min_count=min_count, limit=limit)
        for encoder, text in zip(encoders, (source_text, target_text), strict=True)
    )
    found = align_anchors(first, second, pairs, test_pairs=test_pairs, config=config)
    found.alignment.save(folder)
    if lexicon is not None:
        write_text(lexicon, "".join(f"{e.word}\t{e.translation}\t{e.score:.4f}\n" for e in found.lexicon()))
        typer.echo(f"{lexicon}: the words and their translations, by {found.best}", err=True)
    retrieved: list[tuple[Retrieval | None, Retrieval]] = []
    if same_text is not None:
        sentences = list(read_inputs([same_text], tokenizer=encoders[1].tokenizer, lines=lines))
        mapped = retrieve_tokens(encoders[0].aligned(found.alignment), encoders[1], sentences)
        alike = encoders[0].width == encoders[1].width
        before = retrieve_tokens(*encoders, sentences) if alike else [None] * len(mapped)
        retrieved = list(zip(before, mapped, strict=True))
    _report(found, retrieved, (first, second), listed=test_words, json_output=json_output)
    typer.echo(f"the maps are in {folder}; use them with  -m aligned:{folder}", err=True)


def _beside(source: str, target: str) -> Path:
    """Where the maps go by default: inside the source's folder, named after the target."""
    from elmokit.encoders.alignment import BESIDE
    from elmokit.errors import InputError

    if not Path(source).is_dir():
        raise InputError(f"{source} is not a folder of its own, so the maps cannot lie in it; say where with -o FOLDER")
    path = Path(target)
    name = path.resolve().parent.name if path.is_dir() and path.resolve().name == "model" else path.stem
    return Path(source) / BESIDE / (name or "target")


def _indexed(text: str) -> bool:
    from elmokit.index.settings import MANIFEST

    return (Path(text) / MANIFEST).exists()


def _anchors(encoder: "Encoder", text: str, *, lines: str, min_count: int, limit: int) -> "Anchors":
    from elmokit.analysis.anchors import index_anchors, text_anchors
    from elmokit.cli.inputs import read_inputs
    from elmokit.cli.progress import watched
    from elmokit.formats import ReadReport
    from elmokit.formats.streams import warn_of_bad_bytes
    from elmokit.index import Index

    if _indexed(text):
        return index_anchors(Index.open(text), encoder, min_count=min_count, limit=limit)
    read = ReadReport()
    sentences = read_inputs([text], tokenizer=encoder.tokenizer, lines=lines, report=read)
    found = text_anchors(encoder, watched(sentences, text, read), min_count=min_count, limit=limit)
    warn_of_bad_bytes(read, text)
    return found


def _report(
    found: "Found",
    retrieved: "list[tuple[Retrieval | None, Retrieval]]",
    anchors: "tuple[Anchors, Anchors]",
    *,
    listed: Path | None,
    json_output: bool,
) -> None:
    from dataclasses import asdict

    from elmokit.cli.show import print_json

    about = found.alignment.about
    if json_output:
        records: list[dict[str, Any]] = [{"layer": name, **asdict(t)} for name, t in found.translations.items()]
        records += [{"layer": name, "test_words": asdict(t)} for name, t in found.listed.items()]
        for before, after in retrieved:
            records.append({"retrieval": asdict(after), "unaligned": None if before is None else asdict(before)})
        print_json([*records, {"seed_pairs": about.seed_pairs, "pairs": about.pairs, "rounds": about.rounds}])
        return
    seed = "identical words and numbers" if about.seed == "identical" else "given pairs"
    typer.echo(f"{len(anchors[0]):,} words of {about.source_name}, {len(anchors[1]):,} of {about.target_name}")
    typer.echo(f"seed: {about.seed_pairs:,} {seed}; after {about.rounds} rounds {about.pairs:,} pairs\n")
    _print_precision(found.translations, "words that were held out of the seed")
    if listed is not None:
        typer.echo("")
        _print_precision(found.listed, f"words of {listed}")
        if not found.listed:
            typer.echo(f"no pair of {listed} has anchors in both models")
    if retrieved:
        typer.echo(
            f"\nthe same place in {retrieved[0][1].tokens:,} words of text: nearest of all, and of the same word's"
        )
        typer.echo(f"{'layer':12}  unaligned       aligned")
        for before, after in retrieved:
            old = "-" if before is None else f"{before.at_1:5.1%} {before.same_word:6.1%}"
            typer.echo(f"{after.layer:12}  {old:14}  {after.at_1:5.1%} {after.same_word:6.1%}")


def _print_precision(translations: "dict[str, Translation]", of: str) -> None:
    if not translations:
        return
    tested = next(iter(translations.values())).words
    typer.echo(f"translation of {tested:,} {of}, by CSLS")
    typer.echo(f"{'layer':12}  at 1   at 5")
    for name, one in translations.items():
        typer.echo(f"{name:12} {one.at_1:5.1%}  {one.at_5:5.1%}")
