"""One card: memory, kernels and one queue of work, by CuPy or by what is given in its place.

Takes: the module `cupy`, or an object with those of its names that are used here.
Gives: `Device`. Every transfer is a call of `upload` or `download`; nothing else crosses over.
Next file: `backends/cupy_.py`.

CuPy keeps freed memory, each stream's apart. A new device gives it all back to the card first.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from heomdask import memory
from heomdask.errors import TooLarge
from heomdask.plan import AnyArray

Array = Any  # in the memory of the card
Macros = tuple[tuple[str, str | int], ...]

OPTIONS = ("--std=c++17", "--fmad=false")  # nothing is contracted that is not written as such
PIECE = 512  # bytes: CuPy's pool hands out whole ones
_FOLDER = Path(__file__).parent


def source(name: str) -> str:
    """The text of a kernel file, after what the files share."""
    parts = [_FOLDER / "numbers.h", _FOLDER / f"{name}.cu"]
    return "\n".join(part.read_text(encoding="utf-8") for part in parts)


def number_macros(dtype: np.dtype[Any]) -> Macros:
    """What the elements of a state are."""
    real = "float" if np.finfo(dtype).bits == 32 else "double"
    return (("HD_REAL", real), ("HD_COMPLEX", int(dtype.kind == "c")))


def occupied(nbytes: int) -> int:
    """Bytes that an array of so many takes of the card."""
    return -(-nbytes // PIECE) * PIECE


class Device:
    """The card that is current when this is made, with a stream of its own."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self._device = api.cuda.Device()
        with self._device:
            self.stream = api.cuda.Stream(non_blocking=True)
            api.get_default_memory_pool().free_all_blocks()
        self._modules: dict[tuple[str, Macros], Any] = {}
        self._kernels: dict[tuple[str, str, Macros], Any] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """What the card is called."""
        found: Any = self._api.cuda.runtime.getDeviceProperties(self._device.id)["name"]
        return found.decode() if isinstance(found, bytes) else str(found)

    @property
    def capability(self) -> str:
        """What it can do, as ``sm_90``."""
        return f"sm_{self._device.compute_capability}"

    @property
    def free(self) -> int:
        """Bytes of the card that may still be taken, or of the limit that its pool was set."""
        pool = self._api.get_default_memory_pool()
        with self._device:
            left: int = self._api.cuda.runtime.memGetInfo()[0] + pool.free_bytes()
            limit: int = pool.get_limit()  # 0 if there is none
            return min(left, limit - pool.used_bytes()) if limit else left

    @contextlib.contextmanager
    def _here(self) -> Iterator[None]:
        """On this card and in this queue, whatever the calling thread has used before."""
        try:
            with self._device, self.stream:
                yield
        except self._api.cuda.memory.OutOfMemoryError as error:
            raise TooLarge(
                f"The memory of {self.name} has run out, where {memory.readable(self.free)} are "
                "free; run fewer members in a batch, or smaller problems."
            ) from error

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Memory that holds anything."""
        with self._here():
            return self._api.empty(shape, dtype)

    def zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Memory that holds zeros."""
        with self._here():
            return self._api.zeros(shape, dtype)

    def upload(self, host: AnyArray, onto: Array = None) -> Array:
        """A copy on the card, in new memory or over what is there."""
        with self._here():
            target = self._api.empty(host.shape, host.dtype) if onto is None else onto
            target.set(np.ascontiguousarray(host))
        return target

    def download(self, array: Array) -> AnyArray:
        """A copy on the host, when all work before it is done."""
        with self._here():
            host: AnyArray = array.get()
        return host

    def is_on_card(self, array: Any) -> bool:
        """Whether an array lies in the memory of a card."""
        return isinstance(array, self._api.ndarray)

    def launch(
        self, file: str, name: str, macros: Macros, blocks: int, threads: int, *arguments: Any
    ) -> None:
        """Put a kernel into the queue; integers have 64 bits, None is a null pointer."""
        if blocks == 0:
            return
        given = tuple(_argument(a) for a in arguments)
        with self._here():
            self._kernel(file, name, macros)((blocks,), (threads,), given)

    def _kernel(self, file: str, name: str, macros: Macros) -> Any:
        """A kernel; its file is compiled at the first use of any of them."""
        with self._lock:
            if (file, macros) not in self._modules:
                options = (*OPTIONS, *(f"-D{macro}={value}" for macro, value in macros))
                self._modules[file, macros] = self._api.RawModule(
                    code=source(file), options=options
                )
            if (file, name, macros) not in self._kernels:
                kernel = self._modules[file, macros].get_function(name)
                self._kernels[file, name, macros] = kernel
            return self._kernels[file, name, macros]

    def record(self) -> Any:
        """An event behind all work so far."""
        with self._here():
            return self.stream.record()

    def wait(self, event: Any) -> None:
        """Let later work wait for an event."""
        self.stream.wait_event(event)

    def synchronize(self) -> None:
        """Return when the queue is empty."""
        self.stream.synchronize()


def _argument(value: Any) -> Any:
    if value is None:
        return np.uintp(0)
    if isinstance(value, int):
        return np.int64(value)
    return np.float64(value) if isinstance(value, float) else value
