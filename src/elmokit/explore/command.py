"""`prepare`: the explorer's server, with all it was given, on a socket that is bound."""

import socket
import warnings
from collections.abc import Sequence
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.trustedhost import TrustedHostMiddleware

from elmokit.errors import ElmokitWarning, InputError
from elmokit.explore.explorer import Explorer, named
from elmokit.explore.router import explore_router
from elmokit.index import Index
from elmokit.server import Service, address_of, bind, create_app
from elmokit.server.settings import ServerSettings
from elmokit.server.sources import ready_tasks
from elmokit.weights.load import BUNDLED, bundled_models

LOOPBACK = ("localhost", "::1", "127.")


def prepare(
    indexes: Sequence[Path] = (),
    *,
    model: str | None = None,
    tasks: Sequence[str] = (),
    runs: Sequence[Path] = (),
    probes: Sequence[Path] = (),
    host: str = "127.0.0.1",
    port: int = 0,
    device: str = "auto",
) -> tuple[FastAPI, Service, socket.socket, str]:
    """The app, its service, the bound socket, and the address of the page. Wrong folders are errors at once.

    The task models that come with elmokit are shown behind `tasks`; each is loaded when it is first used.
    """
    opened = {name: Index.open(folder) for name, folder in named(indexes).items()}
    for folder in runs:
        if not folder.is_dir():
            raise InputError(f"{folder}: no folder; expected a run of  elmokit pretrain CORPUS -o RUN")
    if model is None and opened:
        first = next(iter(opened.values()))
        model = first.manifest.model_place
        if Path(model).parent == BUNDLED:
            model = Path(model).name
        elif model not in bundled_models() and not Path(model).exists():
            raise InputError(
                f"{first.folder}: made with the model {model!r}, which is not there; say with -m where that model is"
            )
    settings = ServerSettings(task=tuple(tasks), host=host, port=port, device=device)
    bound = bind(host, port)
    try:
        loaded = Service.load(settings, model=[model] if model else ())
        for index in opened.values():
            if index.manifest.model != loaded.encoder().fingerprint:
                warnings.warn(
                    f"{index.folder} was made with another model ({index.manifest.source!r}, fingerprint "
                    f"{index.manifest.model}) than {loaded.encoder().source!r}: of its words there are only the layers "
                    "that it holds, and no nearest words; say with -m where its model is, or make it again",
                    ElmokitWarning,
                    stacklevel=2,
                )
        service = Service(loaded.encoders, tasks=loaded.tasks, indexes=opened, settings=settings)
        explorer = Explorer(
            service.encoder(),
            indexes=opened,
            tasks=service.tasks,
            ready=ready_tasks(),
            runs=runs,
            probes=probes,
            model=model,
            lm=service.language_model,
        )
        service.warm_up()
        explorer.warm_up()
        app = create_app(service, routers=[explore_router(service, explorer)], log=None)
        if host.startswith(LOOPBACK):  # a page of another site, under a name of its own, must not reach it
            app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]", host])
    except BaseException:
        bound.close()
        raise
    return app, service, bound, f"{address_of(bound)}/explore/"
