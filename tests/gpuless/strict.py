"""A stand-in for CuPy on a host, stricter than CuPy itself; the kernels run in the emulator.

It has only those of CuPy's names that the backend uses. Arrays refuse every use on the host but
`get` and `set`. Memory begins as NaN and ends at a page that cannot be touched. A launch is refused
unless every argument has the declared type, lies on this device, and the stream is not the default
one. Work runs at once, but vector clocks say what would have been ordered: a read or a write that
no event or wait orders behind the last writer is an error, as is memory given back while a stream
other than its own may still use it.

It says nothing about speed, about what a real driver does, or about the default stream; of CuPy's
pool it knows the sizes (`pool.py`).
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
import weakref
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
from gpuless.emulator import Compiler, Library, Parameter
from gpuless.pool import OutOfMemoryError, Pool
from numpy.typing import DTypeLike, NDArray

from heomdask._cuda.device import OPTIONS

Clock = dict[int, int]
PAGE = mmap.PAGESIZE
NO_ACCESS = 0
_libc = ctypes.CDLL(None, use_errno=True)


class Misuse(TypeError):
    """Something that a card would not do, or not always do right."""


class Buffer:
    """Memory before a guard page, filled with 0xff, and who used it last."""

    def __init__(self, size: int, taken: int) -> None:
        self.taken = taken
        length = -(-max(size, 1) // PAGE) * PAGE
        self._map = mmap.mmap(-1, length + PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if _libc.mprotect(ctypes.c_void_p(base + length), PAGE, NO_ACCESS) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
        self.address = base + length - size
        ctypes.memset(self.address, 0xFF, size)
        self.written: tuple[int, int] | None = None
        self.read: Clock = {}

    def check(self, clock: Clock, writing: bool, what: str) -> None:
        """Whether all that must come first has come first, for one who knows of `clock`."""
        before = dict(self.read) if writing else {}
        if self.written is not None:
            agent, count = self.written
            before[agent] = max(count, before.get(agent, 0))
        late = [agent for agent, count in before.items() if clock.get(agent, 0) < count]
        if late:
            raise Misuse(f"{what}: not ordered behind earlier work of stream {late[0]}")


def _join(clock: Clock, other: Clock) -> None:
    for agent, count in other.items():
        clock[agent] = max(clock.get(agent, 0), count)


class StrictCupy:
    """What takes the place of the module `cupy`."""

    __version__ = "0"

    def __init__(
        self, compiler: Compiler, devices: int = 2, order: int = 0, card: int = 2**34
    ) -> None:
        self.order = order
        self.pool = Pool(card)
        self.hazards: list[str] = []
        self.launches: list[str] = []
        self._compiler = compiler
        self._devices = devices
        self._lock = threading.RLock()
        self._host: Clock = {}
        self._local = threading.local()
        self._streams = 0
        api = self

        class Device(_Device):
            def __init__(self, number: int | None = None) -> None:
                super().__init__(api, api.device if number is None else number)

        class Stream(_Stream):
            def __init__(self, *, non_blocking: bool) -> None:
                super().__init__(api, non_blocking)

        class RawModule(_RawModule):
            def __init__(self, *, code: str, options: tuple[str, ...]) -> None:
                super().__init__(api, code, options)

        self.ndarray = Array
        self.RawModule = RawModule
        runtime = SimpleNamespace(
            is_hip=False, driverGetVersion=lambda: 13000, runtimeGetVersion=lambda: 13000,
            getDeviceCount=lambda: devices, memGetInfo=self._memory,
            getDeviceProperties=lambda number: {"name": f"strict {number}".encode()},
        )  # fmt: skip
        self.cuda = SimpleNamespace(
            Device=Device, Stream=Stream, runtime=runtime,
            nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            get_elapsed_time=lambda start, end: 1e3 * (end.seconds - start.seconds),
        )  # fmt: skip

    @property
    def device(self) -> int:
        """The current device of this thread."""
        return getattr(self._local, "devices", [0])[-1]

    @property
    def stream(self) -> _Stream:
        """The current stream of this thread; the default one is refused."""
        stack = getattr(self._local, "streams", [])
        if not stack:
            raise Misuse("work on the default stream")
        if stack[-1].device != self.device:
            raise Misuse("the stream belongs to another device")
        return stack[-1]

    def get_default_memory_pool(self) -> Pool:
        return self.pool

    def _memory(self) -> tuple[int, int]:
        return self.pool.card - self.pool.total_bytes(), self.pool.card

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        return Array(self, shape, np.dtype(dtype))

    def zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        array = self.empty(shape, dtype)
        with self._lock:
            self.begin("zeros", writes=[array])
            array.memory()[...] = 0
        return array

    def begin(self, what: str, *, reads: Any = (), writes: Any = ()) -> None:
        """Put work on the current stream: check its order, then note it."""
        stream = self.stream
        _join(stream.clock, self._host)
        stream.clock[stream.number] += 1
        for array in (*reads, *writes):
            if array.device != self.device:
                raise Misuse(f"{what}: an array of device {array.device} on {self.device}")
        for array in reads:
            array.buffer.check(stream.clock, False, what)
        for array in writes:
            array.buffer.check(stream.clock, True, what)
        now = stream.number, stream.clock[stream.number]
        for array in reads:
            array.buffer.read[now[0]] = now[1]
        for array in writes:
            array.buffer.written, array.buffer.read = now, {}

    def wait_for(self, clock: Clock) -> None:
        """The host has seen all of this."""
        with self._lock:
            _join(self._host, clock)

    def give_back(self, buffer: Buffer, owner: _Stream) -> None:
        """The pool may use the memory again on the stream that it was taken on."""
        self.pool.give(buffer.taken, owner.number)
        try:
            clock = dict(owner.clock)
            _join(clock, self._host)
            buffer.check(clock, True, "memory given back")
        except Misuse as error:
            self.hazards.append(str(error))


class _Device:
    compute_capability = "00"

    def __init__(self, api: StrictCupy, number: int) -> None:
        if not 0 <= number < api._devices:
            raise Misuse(f"there is no device {number}")
        self.id = number
        self._api = api

    def __enter__(self) -> None:
        local = self._api._local
        local.devices = [*getattr(local, "devices", [0]), self.id]

    def __exit__(self, *_: object) -> None:
        self._api._local.devices.pop()


class _Event:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seconds = time.perf_counter()


class _Stream:
    def __init__(self, api: StrictCupy, non_blocking: bool) -> None:
        if not non_blocking:
            raise Misuse("a stream that waits for the default one")
        api._streams += 1
        self.number = self.ptr = api._streams
        self.device = api.device
        self.clock: Clock = defaultdict(int)
        self._api = api

    def __enter__(self) -> None:
        local = self._api._local
        local.streams = [*getattr(local, "streams", []), self]

    def __exit__(self, *_: object) -> None:
        self._api._local.streams.pop()

    def record(self) -> _Event:
        if self._api.device != self.device:
            raise Misuse("an event on the stream of another device")
        return _Event(dict(self.clock))

    def wait_event(self, event: _Event) -> None:
        _join(self.clock, event.clock)

    def synchronize(self) -> None:
        self._api.wait_for(self.clock)


class Array:
    """An array on a device: contiguous, opaque to the host."""

    def __init__(self, api: StrictCupy, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self.device = api.device
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self.buffer = Buffer(self.nbytes, api.pool.take(self.nbytes, api.stream.number))
        self.data = SimpleNamespace(ptr=self.buffer.address)
        self._api = api
        weakref.finalize(self, api.give_back, self.buffer, api.stream)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, *_: object) -> None:
        raise Misuse(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct "
            "a NumPy array explicitly."
        )

    def __setitem__(self, where: object, other: Array) -> None:
        alike = isinstance(other, Array) and (other.shape, other.dtype) == (self.shape, self.dtype)
        if where is not Ellipsis or not alike:
            raise Misuse("only `x[...] = y` of arrays that are alike")
        with self._api._lock:
            self._api.begin("copy", reads=[other], writes=[self])
            self.memory()[...] = other.memory()

    def memory(self) -> NDArray[Any]:
        """The host's view: for this stand-in only."""
        raw = (ctypes.c_char * self.nbytes).from_address(self.buffer.address)
        return np.frombuffer(raw, self.dtype).reshape(self.shape)

    def get(self) -> NDArray[Any]:
        with self._api._lock:
            self._api.begin("get", reads=[self])
            host = self.memory().copy()
            self._api.wait_for(self._api.stream.clock)
        return host

    def set(self, host: NDArray[Any]) -> None:
        if type(host) is not np.ndarray or not host.flags.c_contiguous:
            raise Misuse("`set` takes a contiguous numpy array")
        if host.shape != self.shape or host.dtype != self.dtype:
            raise Misuse(f"`set` of {host.shape} {host.dtype} to {self.shape} {self.dtype}")
        with self._api._lock:
            self._api.begin("set", writes=[self])
            self.memory()[...] = host


class _RawModule:
    def __init__(self, api: StrictCupy, code: str, options: tuple[str, ...]) -> None:
        macros = tuple(o for o in options if o.startswith("-D"))
        if tuple(o for o in options if o not in macros) != OPTIONS:
            raise Misuse(f"options {options}")
        self._api = api
        with api._lock:
            self._library = api._compiler.build(code, macros)
        values = dict(macro[2:].split("=") for macro in macros)
        self._types = _types(values["HD_REAL"], values["HD_COMPLEX"] == "1")
        self._types["sum"] = self._types["wide" if values.get("HD_WIDE_SUM") == "1" else "num"]

    def get_function(self, name: str) -> Kernel:
        return Kernel(self._api, self._library, name, self._types)


def _types(real: str, is_complex: bool) -> dict[str, np.dtype[Any]]:
    """The names of types in the kernels."""
    single = real == "float"
    num = {(0, 0): "f8", (0, 1): "f4", (1, 0): "c16", (1, 1): "c8"}[int(is_complex), int(single)]
    named = {
        "num": num, "wide": "c16" if is_complex else "f8", "double": "f8", "Peak": "f8",
        "hd_long": "i8", "int": "i4", "Link": "i4", "Term": "i4",
    }  # fmt: skip
    return {name: np.dtype(code) for name, code in named.items()}


class Kernel:
    """A kernel that checks what it is given before it runs; registers it has none."""

    num_regs = local_size_bytes = 0

    def __init__(
        self, api: StrictCupy, library: Library, name: str, types: dict[str, np.dtype[Any]]
    ) -> None:
        self._api, self._library, self._name, self._types = api, library, name, types
        self._parameters = library.signatures[name]

    def __call__(self, grid: tuple[int], block: tuple[int], given: tuple[Any, ...]) -> None:
        if len(given) != len(self._parameters):
            raise Misuse(f"{self._name} takes {len(self._parameters)} arguments, not {len(given)}")
        (blocks,), (threads,) = grid, block
        if not (1 <= blocks < 2**31 and 1 <= threads <= 1024):
            raise Misuse(f"{self._name}: {blocks} blocks of {threads} threads")
        pairs = list(zip(self._parameters, given, strict=True))
        values = [self._value(parameter, argument) for parameter, argument in pairs]
        arrays = [(p, a) for p, a in pairs if isinstance(a, Array)]
        with self._api._lock:
            self._api.begin(
                self._name,
                reads=[a for p, a in arrays if p.const],
                writes=[a for p, a in arrays if not p.const],
            )
            self._api.launches.append(self._name)
            self._library.launch(self._name, values, blocks, threads, self._api.order)

    def _value(self, parameter: Parameter, argument: Any) -> Any:
        what, wanted = f"{self._name}: `{parameter.name}`", self._types[parameter.type]
        if parameter.pointer:
            if isinstance(argument, Array):
                if argument.dtype != wanted:
                    raise Misuse(f"{what} points to {wanted}, not {argument.dtype}")
                return ctypes.c_void_p(argument.buffer.address)
            if type(argument) is np.uintp and argument == 0:
                return ctypes.c_void_p(0)
            raise Misuse(f"{what} is a pointer, not {type(argument).__name__}")
        if type(argument) is not wanted.type:
            raise Misuse(f"{what} is {wanted}, not {type(argument).__name__}")
        kind: Any = ctypes.c_longlong if wanted.kind == "i" else ctypes.c_double
        return kind(argument.item())
