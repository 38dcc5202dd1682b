"""`serve`: everything that `elmokit serve` does, from settings to the last answer."""

import sys
from collections.abc import Callable, Sequence

import torch

from elmokit.errors import InputError
from elmokit.server.app import create_app
from elmokit.server.front import Keys
from elmokit.server.run import address_of, bind, run_app
from elmokit.server.service import Service
from elmokit.server.settings import ServerSettings
from elmokit.server.workers import Workers, cores, end_with_parent, listen_again

SWITCH = 0.0005  # seconds that one thread may keep others from Python: the model thread needs it often, for a moment
LOOPBACK = ("localhost", "::1", "127.")


def serve(settings: ServerSettings, *, model: Sequence[str] = (), tell: Callable[[str], None]) -> None:
    """Loads, warms up, listens and serves until a signal comes; `tell` gets lines for the user."""
    sys.setswitchinterval(SWITCH)
    Keys.read(settings.api_key_file)  # a wrong file is an error before a model is loaded
    with bind(settings.host, settings.port) as bound:
        if not settings.api_key_file and not settings.host.startswith(LOOPBACK):
            tell(
                f"note: {settings.host} can be reached from other machines, and there is no --api-key-file: whoever "
                "reaches it may use it"
            )
        if settings.workers > 1:
            torch.set_num_threads(1)  # threads of torch's would not live on in a fork
        service = Service.load(settings, model=model)

        def serving() -> None:
            many = f" with {settings.workers} workers" if settings.workers > 1 else ""
            tell(f"serving {', '.join(service.encoders)}{many} on {address_of(bound)}")

        if settings.workers == 1:
            if settings.threads:
                torch.set_num_threads(settings.threads)
            service.warm_up()
            run_app(create_app(service), service, bound, on_start=serving)
            return
        if service.encoder().device.type == "cuda":
            raise InputError("--workers: a GPU is used by one process; leave --workers out, or use --device cpu")

        def work(ready: Callable[[], None]) -> None:
            torch.set_num_threads(settings.threads or max(cores() // settings.workers, 1))
            service.warm_up()
            app = create_app(service, log=sys.stderr)
            end_with_parent(lambda: app.state.stop())
            run_app(app, service, listen_again(bound), on_start=ready)

        Workers(work, settings.workers).run(serving)
