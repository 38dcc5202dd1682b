"""The HTTP server: `Service` holds the models and their thread, `create_app` makes the routes, `run_app` runs it."""

from typing import TYPE_CHECKING, Any

from elmokit._lazy import lazy
from elmokit.errors import needing

if TYPE_CHECKING:
    from elmokit.server.app import create_app
    from elmokit.server.command import serve
    from elmokit.server.errors import ApiError
    from elmokit.server.jobs import current_job
    from elmokit.server.run import address_of, bind, run_app
    from elmokit.server.service import Encoded, Service
    from elmokit.server.settings import ServerSettings

__all__ = [
    "ApiError", "Encoded", "ServerSettings", "Service", "address_of", "bind", "create_app", "current_job", "run_app",
    "serve",
]  # fmt: skip

LIBRARIES = ("fastapi", "uvicorn", "httptools", "starlette", "pydantic", "prometheus_client", "orjson")

_load, __dir__ = lazy(
    __name__,
    {
        "app": "create_app",
        "errors": "ApiError",
        "jobs": "current_job",
        "run": "address_of bind run_app",
        "service": "Encoded Service",
        "settings": "ServerSettings",
        "command": "serve",
    },
)


def __getattr__(name: str) -> Any:
    with needing(LIBRARIES, "the server", extra="server"):
        return _load(name)
