"""`elmokit serve`: models, task models and indexes over HTTP."""

from typing import Any

import typer

from elmokit.cli.flags import EncodersOption, with_fields
from elmokit.config import combine
from elmokit.server.settings import ServerSettings


def _serve(model: EncodersOption = None, **flags: Any) -> None:
    """Serve models, task models and indexes over HTTP.

        elmokit serve
        elmokit serve --task ner --task pos
        elmokit serve -m model/ --task ner-model/ --index index/ --port 9000
        curl localhost:8000/v1/embeddings --json '{"input": "Hello."}'

    The routes are those of OpenAI, those of text-embeddings-inference, and elmokit's own; the address /docs shows them
    all. Ctrl-C or SIGTERM stops the server when the requests under way are answered; a
    second one stops it at once. Every flag can be given as an environment variable, too: ELMOKIT_PORT for --port.
    """
    from contextlib import nullcontext

    settings = combine(ServerSettings, ("the flags", {k: v for k, v in flags.items() if v not in (None, [])}))
    from elmokit.server.workers import counted_together

    with counted_together() if settings.workers > 1 else nullcontext():
        from elmokit.server import serve

        serve(settings, model=model or (), tell=lambda line: typer.echo(f"elmokit: {line}", err=True))


serve = with_fields(_serve, ServerSettings(), environment="ELMOKIT")
