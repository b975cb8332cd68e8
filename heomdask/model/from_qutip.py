"""The border to QuTiP: its objects become plain arrays and `Exponents` here, and nowhere else.

Takes: any argument that may be a QuTiP object; recognised by the names of its classes, so that
QuTiP is never imported.
Gives: `dims`, `bath`, `coupling`: the plain equivalent, or the argument as it was.
Next file: `problem.py`.

QuTiP writes C = C_R + i C_I and marks its exponents R, I or RI. With its hierarchy
-i[Q, .] upwards, -i n c [Q, .] for R and n c {Q, .} for I downwards, they are

    R : c = cbar = ck        I : c = i ck, cbar = -i ck        RI : c, cbar = ck +- i ck2

for real and complex ck alike, one mode for each: the hierarchy is the one that QuTiP builds.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from heomdask import checks
from heomdask.errors import InputError
from heomdask.model.brownian import UnderdampedBrownian
from heomdask.model.drude import DrudeLorentz
from heomdask.model.exponents import Exponents
from heomdask.model.ohmic import Ohmic


def dims(name: str, value: Any) -> list[Any] | None:
    """Tensor structure of a constant QuTiP operator, None for anything but QuTiP's."""
    if not _names(value):
        return None
    if "Qobj" not in _names(value):
        raise checks.refuse(
            name, "a constant operator", type(value).__name__,
            "give its constant part, and its time-dependent terms as drives",
        )  # fmt: skip
    if value.type != "oper":
        raise checks.refuse(
            name, "an operator", f"a QuTiP object of the type {value.type}",
            "give Lindblad operators as `lindblad` and a terminator as (environment, delta)",
        )  # fmt: skip
    return list(value.dims)


def bath(value: Any) -> Any:
    """A heomdask bath for a QuTiP environment or a pair (environment, delta).

    `delta` is the strength of the terminator as QuTiP's `approximate(..., compute_delta=True)`
    gives it. Anything else is returned as it is.
    """
    if isinstance(value, tuple) and len(value) == 2 and _is_environment(value[0]):
        return _environment(value[0], _strength(value[1]))
    return _environment(value, 0.0) if _is_environment(value) else value


def couplings(value: Any) -> list[tuple[Any, Any]] | None:
    """(Q, bath) pairs for an item of a list of couplings, None for what cannot be one.

    That is a pair (Q, bath), and what QuTiP's solver takes: a bath object, a pair (environment,
    Q), and these with a terminator, (bath object, delta) and ((environment, delta), Q).
    """
    if _has_operators(value):
        return _by_operator(value.exponents, 0.0)
    if not isinstance(value, tuple) or len(value) not in (2, 3):
        return None
    first, second = value[:2]
    if len(value) == 3:
        if value[2] is not None:
            raise checks.refuse(
                "couplings", "without `dim`", value[2], "limit single modes by `depth` instead"
            )
        value = (first, second)
    if _has_operators(first):
        return _by_operator(first.exponents, _strength(second))
    if _is_environment(first) or (isinstance(first, tuple) and _is_environment(first[0])):
        return [(second, bath(first))]
    return [(first, bath(second))]


def exponents(given: Sequence[Any], delta: float = 0.0) -> Exponents:
    """The modes of a list of QuTiP's bosonic exponents, in its order."""
    c, cbar, gamma = [], [], []
    for exponent in given:
        kind = exponent.type.name
        ck, vk = complex(exponent.ck), complex(exponent.vk)
        if kind not in ("R", "I", "RI"):
            raise InputError(
                "`bath` must be bosonic, got a QuTiP exponent of the fermionic type "
                f"{kind!r}; fermionic baths are not supported."
            )
        if getattr(exponent, "dim", None) is not None:
            raise checks.refuse(
                "bath", "without `dim`", exponent.dim, "limit single modes by `depth` instead"
            )
        real = 0.0 if kind == "I" else ck
        imaginary = ck if kind == "I" else complex(exponent.ck2 or 0.0)
        c.append(real + 1j * imaginary)
        cbar.append(real - 1j * imaginary)
        gamma.append(vk)
    return Exponents(c=c, cbar=cbar, gamma=gamma, delta=delta)


def _environment(value: Any, delta: float) -> Any:
    """A QuTiP environment as a heomdask bath."""
    names = _names(value)
    if "FermionicEnvironment" in names:
        raise InputError(
            f"`bath` must be bosonic, got {type(value).__name__}; fermionic baths are not "
            "supported."
        )
    if "ExponentialBosonicEnvironment" in names:
        return exponents(value.exponents, delta)
    if delta != 0:
        raise checks.refuse(
            "delta", "0 for an environment without exponents", delta,
            "use the environment that `approximate` returned with it",
        )  # fmt: skip
    if "DrudeLorentzEnvironment" in names:
        return DrudeLorentz(lam=value.lam, gamma=value.gamma, T=value.T)
    if "UnderDampedEnvironment" in names:
        return UnderdampedBrownian(alpha=value.lam, gamma=value.gamma, w0=value.w0, T=value.T)
    if "OhmicEnvironment" in names:
        return Ohmic(alpha=value.alpha, wc=value.wc, s=value.s, T=value.T)
    raise checks.refuse(
        "bath", "an environment known by its formula or its exponents", type(value).__name__,
        "call its `approximate`, or give its J(w) as heomdask.SpectralDensity",
    )  # fmt: skip


def _strength(delta: Any) -> float:
    """The strength of a terminator; QuTiP gives it as a complex number without imaginary part."""
    real = delta.real if isinstance(delta, complex) and delta.imag == 0 else delta
    return checks.real_number("delta", real)


def _by_operator(given: Sequence[Any], delta: float) -> list[tuple[Any, Any]]:
    """One (Q, Exponents) pair for each different Q of QuTiP's exponents."""
    groups: list[tuple[Any, list[Any]]] = []
    for exponent in given:
        same = next((g for Q, g in groups if Q == exponent.Q), None)
        if same is None:
            groups.append((exponent.Q, [exponent]))
        else:
            same.append(exponent)
    if delta != 0 and len(groups) != 1:
        raise InputError("`delta` needs a bath with one coupling operator, got several.")
    return [(Q, exponents(group, delta)) for Q, group in groups]


def _is_environment(value: Any) -> bool:
    return bool({"BosonicEnvironment", "FermionicEnvironment"} & _names(value))


def _has_operators(value: Any) -> bool:
    """Whether this is one of QuTiP's bath objects, whose exponents know their Q."""
    return bool({"Bath", "BosonicBath", "FermionicBath"} & _names(value))


def _names(value: Any) -> frozenset[str]:
    """Names of the QuTiP classes that the value is an instance of."""
    return _qutip_bases(type(value))  # type: ignore[arg-type]  # a class has a hash


@functools.lru_cache(maxsize=256)
def _qutip_bases(cls: type) -> frozenset[str]:
    return frozenset(
        base.__name__ for base in cls.__mro__ if base.__module__.partition(".")[0] == "qutip"
    )
