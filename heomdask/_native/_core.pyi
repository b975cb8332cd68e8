# Types of the compiled extension.

from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

_S = TypeVar("_S", np.float64, np.float32)
_Ints: TypeAlias = NDArray[np.int32]
_Longs: TypeAlias = NDArray[np.int64]
_Doubles: TypeAlias = NDArray[np.float64]
_Super: TypeAlias = tuple[list[int], _Ints, _Ints, _Ints, _Ints, _Ints]

def instruction_sets() -> list[tuple[str, bool]]: ...
def current_cpu() -> int: ...
def multiply_adds(isa: str, single_precision: bool, threads: int, rounds: int) -> float: ...
def triads(isa: str, threads: int, a: _Doubles, b: _Doubles, c: _Doubles, repeats: int) -> None: ...

class LocalSolve:
    def __init__(
        self, isa: str, members: list[tuple[_Doubles, _Doubles, _Doubles, _Doubles]]
    ) -> None: ...

class _Engine(Generic[_S]):
    def __init__(
        self,
        shape: tuple[int, int, int, int, bool, int],
        isa: str,
        threads: int,
        single: bool,
        places: tuple[tuple[int, ...], ...],
        table: _Doubles,
        diagonal: _Doubles | None,
        local: _Super,
        has_local: bool,
        crossings: tuple[_Longs, _Ints, int] | None,
        groups: list[tuple[_Longs, _Ints, int, _Ints, _Ints, _Super]],
        named: list[tuple[int, _Ints, _Doubles]],
        named_diagonal: list[tuple[int, _Doubles]],
    ) -> None: ...
    @property
    def state_size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def clear(self, x: NDArray[_S], /) -> None: ...
    def put(self, host: NDArray[Any], x: NDArray[_S], /) -> None: ...
    def fetch(self, x: NDArray[_S], host: NDArray[Any], /) -> None: ...
    def pack(
        self, x: NDArray[_S], ado: _Longs, row: _Longs, col: _Longs, host: NDArray[Any], /
    ) -> None: ...
    def unpack(
        self, host: NDArray[Any], ado: _Longs, row: _Longs, col: _Longs, x: NDArray[_S], /
    ) -> None: ...
    def apply(
        self,
        x: NDArray[_S],
        out: NDArray[_S],
        acc: NDArray[_S] | None,
        weights: _Doubles,
        scalars: _Doubles | None,
        begin: int,
        end: int,
    ) -> None: ...
    def recur(
        self,
        x: NDArray[_S],
        acc: NDArray[_S] | None,
        work0: NDArray[_S],
        work1: NDArray[_S],
        coeffs: _Doubles,
        start: int,
        ado: _Longs,
        row: _Longs,
        col: _Longs,
        probed: NDArray[Any],
        norms: _Doubles,
        /,
    ) -> None: ...
    def combine(
        self, out: NDArray[_S], arrays: list[NDArray[_S]], weights: _Doubles, /
    ) -> None: ...
    def dots(self, xs: list[NDArray[_S]], y: NDArray[_S], result: _Doubles, /) -> None: ...
    def error_norm(
        self,
        e: NDArray[_S],
        x: NDArray[_S],
        y: NDArray[_S],
        atol: float,
        rtol: float,
        result: _Doubles,
        /,
    ) -> None: ...
    def solve_local(self, solve: LocalSolve, x: NDArray[_S], out: NDArray[_S], /) -> None: ...

class Engine64(_Engine[np.float64]): ...
class Engine32(_Engine[np.float32]): ...
