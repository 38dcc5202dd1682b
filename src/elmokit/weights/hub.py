"""Models on the Hugging Face hub. The one file that knows its library; caching and login are left to it."""

import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from elmokit.errors import WeightsError
from elmokit.weights.download import offline

FILES = ["config.json", "*.safetensors", "*options.json", "*.hdf5", "*.pkl", "*.dic", "*.txt", "*.txt.gz", "*.json"]
PATIENCE = 5.0  # seconds in which the hub must take a connection; its library would try for a minute


def why_local(*, local_files_only: bool) -> str | None:
    """Why models can come from the hub's cache alone; None if the hub can be asked."""
    if local_files_only:
        return "only local files were asked for"
    if switch := offline():
        return f"{switch} is set"
    return None if _reachable() else "no connection"


def _reachable() -> bool:
    """Whether the hub, or the proxy on the way to it, takes a connection."""
    from huggingface_hub import constants

    hub = urlsplit(constants.ENDPOINT)
    proxy = None if proxy_bypass(hub.hostname or "") else getproxies().get(hub.scheme) or getproxies().get("all")
    there = urlsplit(proxy if "//" in proxy else f"//{proxy}") if proxy else hub
    try:
        address = there.hostname or "", there.port or (443 if there.scheme == "https" else 80)
    except ValueError:  # an address that the hub's library shall explain
        return True
    found: list[bool] = []

    def connect() -> None:
        try:
            socket.create_connection(address, timeout=PATIENCE).close()
            found.append(True)
        except OSError:
            pass

    trial = threading.Thread(target=connect, daemon=True)  # the search for a name can take longer than any timeout
    trial.start()
    trial.join(PATIENCE)
    return bool(found)


def not_reached(what: str, reason: str) -> WeightsError:
    """The error for a model that is not here, while the hub cannot be asked."""
    return WeightsError(
        f"{what}: no such folder on this machine, not in the hub's cache, and the hub was not reached ({reason}); "
        "fetch it once while online, or give a folder"
    )


def fetch(repo_id: str, *, revision: str | None = None, local_files_only: bool = False) -> Path:
    """The folder of a repository's files, from the cache or the hub.

    HF_HUB_OFFLINE, ELMOKIT_OFFLINE and HF_HOME are respected.
    """
    import huggingface_hub as hub  # takes half a second, and is needed for hub ids only
    from huggingface_hub import errors

    reason = why_local(local_files_only=local_files_only)
    what = f"{repo_id}" + (f" at revision {revision}" if revision else "")
    try:
        return Path(
            hub.snapshot_download(
                repo_id,
                revision=revision,
                local_files_only=reason is not None,
                allow_patterns=FILES,
                library_name="elmokit",
            )
        )
    except errors.GatedRepoError:
        raise WeightsError(f"{what}: access must be asked for on the hub; then log in with: hf auth login") from None
    except errors.RevisionNotFoundError:
        raise WeightsError(f"{what}: the repository has no such revision; expected a branch, tag or commit") from None
    except errors.RepositoryNotFoundError:
        raise WeightsError(
            f"{what}: no such folder on this machine and no such repository on the hub; check the name, or log in with "
            "`hf auth login` if it is private"
        ) from None
    except errors.LocalEntryNotFoundError:
        raise not_reached(what, reason or "no connection") from None
    except errors.HFValidationError as error:
        raise WeightsError(f"{what}: not a valid hub id ({error})") from None
    except Exception as error:  # the transport's own errors differ between versions of the library
        raise WeightsError(f"{what}: could not be fetched from the hub ({type(error).__name__}: {error})") from error


def push_to_hub(
    folder: str | Path,
    repo_id: str,
    *,
    revision: str | None = None,
    private: bool = False,
    message: str = "Add an elmokit model",
) -> str:
    """Uploads a saved model, making the repository where there is none; returns its address. Needs `hf auth login`."""
    import huggingface_hub as hub

    folder = Path(folder).expanduser()
    if not (folder / "config.json").is_file() or not (folder / "model.safetensors").is_file():
        raise WeightsError(f"{folder}: no saved elmokit model; expected config.json and model.safetensors")
    try:
        api = hub.HfApi(library_name="elmokit")
        address = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            revision=revision,
            commit_message=message,
            allow_patterns=["config.json", "model.safetensors", "*.txt", "README.md"],
        )
    except Exception as error:  # the transport's own errors differ between versions of the library
        raise WeightsError(
            f"{folder}: could not be uploaded to {repo_id} ({type(error).__name__}: {error}); check the connection and "
            "log in with: hf auth login"
        ) from error
    return str(address)
