"""Models on the Hugging Face hub. The one file that knows its library; caching and login are left to it."""

from pathlib import Path

from elmokit.errors import WeightsError
from elmokit.weights.download import offline

FILES = ["config.json", "*.safetensors", "*options.json", "*.hdf5", "*.pkl", "*.dic", "*.txt", "*.txt.gz", "*.json"]


def fetch(repo_id: str, *, revision: str | None = None, local_files_only: bool = False) -> Path:
    """The folder of a repository's files, from the cache or the hub.

    HF_HUB_OFFLINE, ELMOKIT_OFFLINE and HF_HOME are respected.
    """
    import huggingface_hub as hub  # takes half a second, and is needed for hub ids only
    from huggingface_hub import constants, errors

    local_files_only = local_files_only or offline() is not None
    what = f"{repo_id}" + (f" at revision {revision}" if revision else "")
    try:
        return Path(
            hub.snapshot_download(
                repo_id,
                revision=revision,
                local_files_only=local_files_only,
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
        reason = "only local files were asked for" if local_files_only or constants.HF_HUB_OFFLINE else "no connection"
        raise WeightsError(
            f"{what}: no such folder on this machine, not in the hub's cache, and the hub was not reached ({reason}); "
            "fetch it once while online, or give a folder"
        ) from None
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
