"""`elmokit serve`: models, task models and indexes over HTTP."""

from typing import Any

import typer

from elmokit.cli.flags import EncodersOption, with_fields
from elmokit.config import combine
from elmokit.server.settings import ServerSettings

LOOPBACK = ("localhost", "::1", "127.")


def _serve(model: EncodersOption = None, **flags: Any) -> None:
    """Serve models over HTTP, with OpenAI's routes, those of text-embeddings-inference, and our own.

        elmokit serve
        elmokit serve -m model/ --task ner-model/ --index index/ --port 9000
        curl localhost:8000/v1/embeddings --json '{"input": "Hello."}'

    The address /docs shows all routes. Ctrl-C or SIGTERM stops the server when the requests under way are answered; a
    second one stops it at once. Every flag can be given as an environment variable, too: ELMOKIT_PORT for --port.
    """
    from elmokit.server import Service, address_of, bind, create_app, run_app

    settings = combine(ServerSettings, ("the flags", {k: v for k, v in flags.items() if v not in (None, [])}))
    bound = bind(settings.host, settings.port)
    try:
        if not settings.api_key_file and not settings.host.startswith(LOOPBACK):
            typer.echo(
                f"elmokit: note: {settings.host} can be reached from other machines, and there is no --api-key-file: "
                "whoever reaches it may use it",
                err=True,
            )
        service = Service.load(settings, model=model or ())
        service.warm_up()
        told = f"elmokit: serving {', '.join(service.encoders)} on {address_of(bound)}"
        run_app(create_app(service), service, bound, on_start=lambda: typer.echo(told, err=True))
    finally:
        bound.close()


serve = with_fields(_serve, ServerSettings(), environment="ELMOKIT")
