"""Where a store lies: the few operations on files that a store needs.

Takes: a path or a URL.
Gives: `Folder`, the operations, and `folder_of`, which finds out what a user named; `LocalFolder`.
    Names within a folder have slashes, as keys of zarr have: ``rho/c.0.1``.
Next file: `chunks.py`, the files of a store that workers write.

A file is replaced as a whole: others see the old one or the new one, never a part, whenever a
process is killed. A folder travels to workers by pickle.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from heomdask.errors import StoreError
from heomdask.results.lease import Lease, leased

PARTIAL = ".partial"
GROUP = "zarr.json"  # of the store itself; it is one only with this file
LOCK = "status/driver.lock"

Content = bytes | memoryview


class Folder(ABC):
    """A place of files; ``str(folder)`` is its name for people."""

    _lease: Lease | None = None  # of its driver, where the place has no locks

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lease"}

    @abstractmethod
    def names(self) -> list[str]:
        """What lies directly in the folder; nothing if it is not there. Half a store is nothing."""

    @abstractmethod
    def sizes(self, below: str) -> dict[str, int]:
        """The files in a folder of this one, and their bytes."""

    @abstractmethod
    def written(self, below: str) -> dict[str, float]:
        """The files in a folder of this one, and when they were written, if the place knows."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether a file is there."""

    @abstractmethod
    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        """The contents of files; those that are not there are left out."""

    @abstractmethod
    def write(self, files: Mapping[str, Content]) -> None:
        """Replace files, each as a whole, in any order."""

    @abstractmethod
    def claim(self, name: str, data: bytes) -> None:
        """Write a file only where none is, as far as the place can tell."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Delete files, those that are there."""

    @abstractmethod
    def create(self, files: Mapping[str, bytes]) -> None:
        """Fill the folder, which has no names yet, with all of these files or none."""

    @abstractmethod
    def require_writable(self) -> None:
        """Refuse a place that cannot be written, before any work starts."""

    @abstractmethod
    def free(self) -> int | None:
        """Bytes that are free, if the place has a limit."""

    @abstractmethod
    def driving(self) -> contextlib.AbstractContextManager[None]:
        """Hold the store as its only driver; what killed ones left is swept away."""

    def driven(self) -> bool:
        """Whether a driver holds the store now."""
        return leased(self)

    @abstractmethod
    def zarr(self) -> Any:
        """What zarr and xarray open."""

    def require(self) -> None:
        """Refuse to go on without a store, or as a driver that lost its lease."""
        if not self.exists(GROUP):
            raise deleted(str(self))
        if self._lease is not None and self._lease.lost is not None:
            raise StoreError(self._lease.lost)

    @contextlib.contextmanager
    def _leased(self) -> Iterator[None]:
        """Hold the store by a lease."""
        self._lease = Lease(self)
        try:
            with self._lease.held():
                yield
        finally:
            self._lease = None


class LocalFolder(Folder):
    """A folder of a file system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def names(self) -> list[str]:
        if not self.path.exists():
            return []
        return [p.name for p in self.path.iterdir() if not p.name.endswith(PARTIAL)]

    def sizes(self, below: str) -> dict[str, int]:
        with os.scandir(self.path / below) as entries:
            return {e.name: e.stat().st_size for e in entries if not e.name.endswith(PARTIAL)}

    def written(self, below: str) -> dict[str, float]:
        with os.scandir(self.path / below) as entries:
            return {e.name: e.stat().st_mtime for e in entries if not e.name.endswith(PARTIAL)}

    def exists(self, name: str) -> bool:
        return (self.path / name).exists()

    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        found = {}
        for name in names:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                found[name] = (self.path / name).read_bytes()
        return found

    def write(self, files: Mapping[str, Content]) -> None:
        for name, data in files.items():
            _replace(self.path / name, data)

    def claim(self, name: str, data: bytes) -> None:
        with contextlib.suppress(FileExistsError), (self.path / name).open("xb") as file:
            file.write(data)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def create(self, files: Mapping[str, bytes]) -> None:
        """Written beside its place and renamed.

        An empty folder that stands there (a mount point, maybe) stays and is filled, with the
        metadata of the group last.
        """
        path = self.path
        name = _partial(path.name)
        partial = path / name if path.is_dir() else path.with_name(name)
        try:
            for key, content in files.items():
                file = partial / key
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            if path.is_dir():
                for part in sorted(partial.iterdir(), key=lambda p: p.name == GROUP):
                    part.rename(path / part.name)
                partial.rmdir()
            else:
                partial.rename(path)
        except OSError as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise _unwritable(path, error) from error

    def _standing(self) -> Path:
        """The folder, or the innermost one around it that is there."""
        folder = self.path
        while not folder.exists():
            folder = folder.parent
        return folder

    def require_writable(self) -> None:
        folder = self._standing()
        if not folder.is_dir():
            raise _unwritable(self.path, NotADirectoryError(f"{folder} is not a folder"))
        probe = folder / _partial(self.path.name)
        try:
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def free(self) -> int | None:
        return shutil.disk_usage(self._standing()).free

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        try:
            lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, lock)
            try:
                locked = _locked(lock)
            except OSError:  # a file system without locks
                locked = True
                stack.enter_context(self._leased())
            if not locked:
                raise StoreError(
                    f"the store {self} is in use by another run; wait for it, or end it."
                )
            self._sweep_leftovers()
            yield

    def driven(self) -> bool:
        with contextlib.suppress(OSError), (self.path / LOCK).open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return super().driven()

    def _sweep_leftovers(self) -> None:
        """Delete the half-written files of killed processes, and their half-made stores."""
        mine = re.compile(re.escape(self.path.name) + r"\.[0-9a-f]{32}" + re.escape(PARTIAL))
        beside = [p for p in self.path.parent.glob(f"*{PARTIAL}") if mine.fullmatch(p.name)]
        for leftover in [*beside, *self.path.rglob(f"*{PARTIAL}")]:
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)

    def zarr(self) -> str:
        return str(self.path)


def folder_of(store: str | Path | Folder) -> Folder:
    """The folder that a user names by a path or a URL."""
    if isinstance(store, Folder):
        return store
    if not isinstance(store, (str, os.PathLike)) or not str(store).strip():
        raise StoreError(f"`store` must be the path of a folder, got {store!r}; name one.")
    if isinstance(store, Path) and re.match(r"[a-z][a-z0-9+]+:/[^/]", str(store)):
        raise StoreError(
            f"`store` must be text if it is a URL, got {store!r}, which lost a slash; write it as "
            "'s3://bucket/name.zarr'."
        )
    scheme, found, rest = str(store).partition("://")
    if found and scheme not in ("file", "local"):
        from heomdask.results.remote import RemoteFolder

        return RemoteFolder(str(store))
    if found:
        store = rest
    if Path(store).is_file():
        raise StoreError(f"`store` must be a folder, got the file {store}; choose another path.")
    return LocalFolder(Path(store).resolve())  # workers may have another working folder


def deleted(place: str) -> StoreError:
    """The error for a store that went away while it was in use."""
    return StoreError(
        f"{place} was deleted while the sweep ran; run the sweep again, and leave its store alone."
    )


def _locked(lock: int) -> bool:
    """Take the lock of a store, if no driver has it; those who only ask have it for a moment."""
    for pause in (0.05, 0.2, 0.0):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(pause)
        else:
            return True
    return False


def _unwritable(path: Path, error: Exception) -> StoreError:
    return StoreError(
        f"`store` must be a place that can be written, got {path} ({error}); choose another path "
        "or mend the permissions."
    )


def _partial(name: str) -> str:
    """What something is called before it gets this name, or is deleted."""
    return f"{name}.{uuid.uuid4().hex}{PARTIAL}"


def _replace(file: Path, data: Content) -> None:
    partial = file.with_name(_partial(file.name))
    try:
        partial.write_bytes(data)
        partial.replace(file)
    except FileNotFoundError:
        raise deleted(str(file.parent)) from None
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise unwritten(error) from error


def unwritten(error: Exception) -> StoreError:
    """The error for files of a store that cannot be replaced."""
    return StoreError(
        f"the store cannot be written: {error}. Free space, or mend the permissions, and run "
        "again: what is committed stays."
    )
