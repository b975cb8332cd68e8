"""A store behind a URL, by fsspec: S3 and other object stores, or memory.

Takes: a URL.
Gives: `RemoteFolder`.
Next file: `lease.py`, how such a store is held by one driver.

An object is put as a whole or not at all, so nothing partial is ever seen. What a user has set for
fsspec (in its configuration, or by variables such as FSSPEC_S3_ENDPOINT_URL) travels to workers
with the folder; credentials in variables of AWS do not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from heomdask.brief import install
from heomdask.errors import StoreError
from heomdask.results.folder import GROUP, Content, Folder
from heomdask.results.lease import LEASE


class RemoteFolder(Folder):
    """A folder behind a URL.

    Parameters
    ----------
    url : of the folder.
    """

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        self.url = f"{scheme}://{rest.rstrip('/')}"
        self._options: dict[str, Any] = {"use_listings_cache": False}  # others write, too
        self._options = dict(self._system()[0].storage_options)  # with the configuration of here

    def __str__(self) -> str:
        return self.url

    def __getstate__(self) -> dict[str, Any]:
        if self.url.startswith("memory://"):
            raise StoreError(
                f"`store` must be a place that workers can reach, got {self}, which is in the "
                "memory of this process; give client=SerialRunner(), or another place."
            )
        return super().__getstate__()

    def _system(self) -> tuple[Any, str]:
        """The file system, which fsspec keeps for this process, and the folder's path in it."""
        from fsspec.core import url_to_fs

        try:
            system, root = url_to_fs(self.url, **self._options)
        except (ImportError, ValueError) as error:
            raise StoreError(
                f"`store` must be a path or a URL that can be reached here, got {self.url!r} "
                f"({error}); install what it needs, for s3:// {install('s3')}, or mend the URL."
            ) from error
        if not root.strip("/") or "::" in self.url:
            raise StoreError(
                f"`store` must be one URL with a name for the store, got {self.url!r}; write it as "
                "s3://bucket/name.zarr."
            )
        return system, root.rstrip("/")

    @contextlib.contextmanager
    def _reached(self) -> Iterator[tuple[Any, str]]:
        """The file system and the path; what goes wrong is said in one sentence."""
        try:
            yield self._system()
        except (FileNotFoundError, FileExistsError, StoreError):
            raise
        except Exception as error:
            raise StoreError(
                f"the store {self} cannot be reached ({_said(error)}); {_remedy(error)} and run "
                "again: what is committed stays."
            ) from error

    def names(self) -> list[str]:
        names = self._listed()
        half = GROUP not in names and names and self.exists(LEASE)  # its maker was killed
        return [] if half else names

    def _listed(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError), self._reached() as (system, root):
            places = [place.rstrip("/") for place in system.ls(root, detail=False)]
            return [place.rsplit("/", 1)[-1] for place in places if place != root]
        return []

    def sizes(self, below: str) -> dict[str, int]:
        with self._reached() as (system, root):
            found = system.ls(f"{root}/{below}", detail=True)
        return {f["name"].rsplit("/", 1)[-1]: f["size"] for f in found if f["type"] == "file"}

    def written(self, below: str) -> dict[str, float]:
        with self._reached() as (system, root):
            found = system.ls(f"{root}/{below}", detail=True)
        times = {f["name"].rsplit("/", 1)[-1]: _written(f) for f in found}
        return {name: time for name, time in times.items() if time is not None}

    def exists(self, name: str) -> bool:
        with self._reached() as (system, root):
            return bool(system.exists(f"{root}/{name}"))

    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        asked = list(names)
        found = {}
        with self._reached() as (system, root):
            places = [f"{root}/{name}" for name in asked]
            contents = system.cat_ranges(places, None, None, on_error="return") if places else []
            for name, content in zip(asked, contents, strict=True):
                if isinstance(content, Exception):
                    if not isinstance(content, FileNotFoundError):
                        raise content
                else:
                    found[name] = bytes(content)
        return found

    def write(self, files: Mapping[str, Content]) -> None:
        try:
            with self._reached() as (system, root):
                system.pipe({f"{root}/{name}": bytes(data) for name, data in files.items()})
        except FileNotFoundError as error:
            raise self._unwritable(error) from error

    def claim(self, name: str, data: bytes) -> None:
        with contextlib.suppress(FileExistsError), self._reached() as (system, root):
            system.pipe_file(f"{root}/{name}", data, mode="create")

    def delete(self, names: Iterable[str]) -> None:
        with self._reached() as (system, root):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    system.rm_file(f"{root}/{name}")

    def create(self, files: Mapping[str, bytes]) -> None:
        """Filled under a lease, which marks it as half a store until the group's metadata come."""
        remains = self._remains()
        with self.driving():
            if self.exists(GROUP):
                raise StoreError(
                    f"the store {self} has just been made by another run; run again when that has "
                    "ended."
                )
            self.delete(remains)
            try:
                self.write({name: data for name, data in files.items() if name != GROUP})
                self.write({GROUP: files[GROUP]})
            except StoreError:
                with contextlib.suppress(StoreError):
                    self.delete(files)
                raise

    def _remains(self) -> list[str]:
        """All that is there of half a store, but its lease; the caller knows that it is one."""
        with contextlib.suppress(FileNotFoundError), self._reached() as (system, root):
            names = [place.removeprefix(f"{root}/") for place in system.find(root)]
            return [name for name in names if name != LEASE]
        return []

    def require_writable(self) -> None:
        probe = f"{LEASE}.probe"
        try:
            with self._reached() as (system, root):
                system.pipe_file(f"{root}/{probe}", b"")
                system.rm_file(f"{root}/{probe}")
        except FileNotFoundError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: Exception) -> StoreError:
        return StoreError(
            f"`store` must be a place that can be written, got {self} ({_said(error)}); make its "
            "bucket first, or mend the URL."
        )

    def free(self) -> int | None:
        return None

    def driving(self) -> contextlib.AbstractContextManager[None]:
        return self._leased()

    def zarr(self) -> Any:
        from zarr.storage import FsspecStore

        return FsspecStore.from_url(self.url, storage_options=self._options)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _remedy(error: Exception) -> str:
    """What a user can do, by the kind of an error, of which libraries have many."""
    kind = type(error).__name__
    if "Credential" in kind or "Token" in kind:
        return "set its credentials (for S3 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
    if isinstance(error, PermissionError):
        return "mend the credentials, or what they permit,"
    return "check the URL, its endpoint, and the network"


def _written(info: dict[str, Any]) -> float | None:
    """When a file was written, by one of the names under which file systems of fsspec say it."""
    for name in ("LastModified", "updated", "mtime", "created"):
        match info.get(name):
            case datetime() as when:
                return when.timestamp()
            case float() | int() as seconds:
                return seconds
    return None
