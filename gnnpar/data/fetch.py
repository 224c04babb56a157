"""Downloads, only when asked for and never with a question."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

from gnnpar.data.cards import Card
from gnnpar.data.home import raw_folder
from gnnpar.data.lock import file_lock
from gnnpar.errors import InputError

__all__ = ["ASK_ABOVE", "fetch"]

ASK_ABOVE = 1 << 30
"""Downloads of more bytes need the consent `--yes`."""

_BLOCK = 1 << 20
_TIMEOUT_S = 30.0


def fetch(
    card: Card,
    *,
    yes: bool = False,
    folder: Path | None = None,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> Path:
    """Download the source of a dataset into `folder` (default: where `load` looks) and unpack it.

    Args:
        yes: consent to a download above `ASK_ABOVE`.
        progress: called with the bytes so far and the total where the server tells it.

    Returns:
        The folder. What is already there is not fetched again.

    Raises:
        InputError: nothing to fetch, no consent, no network, a wrong checksum. Nothing half-written stays.
    """
    title = f"dataset {card.name}"
    download = card.download
    if download is None:
        raise InputError(title, [card.obtain.strip() or "is made on this machine: there is nothing to fetch"])
    folder = folder or raw_folder(card.name)
    if folder.is_dir() and any(folder.iterdir()):
        return folder
    size = f"{download.num_bytes / 1e9:.2f} GB"
    if download.num_bytes > ASK_ABOVE and not yes:
        raise InputError(
            title, [f"is a download of {size} from {download.url} to {folder}; add --yes to fetch it"]
        )
    lock = folder.parent / f"{folder.name}.lock"
    partial = folder.parent / f".{folder.name}.part-{os.getpid()}"
    with file_lock(lock, timeout_s=3600.0, what=f"fetching {card.name}"):
        if folder.is_dir() and any(folder.iterdir()):
            return folder
        try:
            partial.mkdir(parents=True)
            file = partial / (Path(download.url).name or card.name)
            _download(download.url, file, progress)
            _check(file, download.sha256)
            if download.unpack:
                with zipfile.ZipFile(file) as archive:
                    archive.extractall(partial)
                file.unlink()
            if folder.exists():
                folder.rmdir()
            os.replace(partial, folder)
        except urllib.error.URLError as error:
            raise InputError(
                title,
                [
                    f"not on disk, and no network: {download.url} cannot be reached ({error.reason}). "
                    f"Download it elsewhere ({size}) and put it into {folder}, or set dataset.path"
                ],
            ) from error
        except (OSError, zipfile.BadZipFile, EOFError) as error:
            raise InputError(
                title, [f"the download of {download.url} broke off ({error}); run it again"]
            ) from error
        finally:
            _remove(partial)
    return folder


def _download(url: str, file: Path, progress: Callable[[int, int | None], None]) -> None:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer, open(file, "wb") as out:
        length = answer.headers.get("Content-Length")
        total = int(length) if length else None
        done = 0
        while block := answer.read(_BLOCK):
            out.write(block)
            done += len(block)
            progress(done, total)
    if total is not None and done != total:
        raise EOFError(f"{done} of {total} bytes arrived")


def _check(file: Path, sha256: str | None) -> None:
    if sha256 is None:
        return
    with open(file, "rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        raise InputError(
            f"download {file.name}",
            [f"its SHA-256 is {found} instead of {sha256}: the file changed or is corrupt"],
        )


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
