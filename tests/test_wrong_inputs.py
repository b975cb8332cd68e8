"""Wrong inputs: each gives one clear sentence with the argument's name, before any work starts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toml_files import PLAIN

import heomdask as hd
from heomdask.cli.config import parse, read, to_sweep
from heomdask.ensemble.runner import as_runner
from heomdask.errors import HeomdaskError, InputError, StoreError, TooLarge
from heomdask.units import quantity

H = np.array([[0.25, 0.5], [0.5, -0.25]])
SZ = np.diag([1.0, -1.0])
NAN = float("nan")
KET = np.array([1.0, 0.0])
TIMES = [0.0, 1.0]


def bath(**changes: Any) -> hd.DrudeLorentz:
    return hd.DrudeLorentz(**({"lam": 0.1, "gamma": 0.5, "T": 0.5} | changes))


def problem() -> hd.Problem:
    return hd.Problem(H, [hd.Coupling(SZ, bath())])


def evolve(
    prob: hd.Problem | None = None, rho0: Any = KET, times: Any = TIMES, **changes: Any
) -> Any:
    keywords = {"depth": 2, "expansion": hd.Pade(1)} | changes
    return hd.evolve(prob or problem(), rho0, times, **keywords)


def build(T: float) -> Any:
    return hd.Problem(H, [hd.Coupling(SZ, bath(T=T))]), KET


def sweep(**changes: Any) -> hd.Sweep:
    keywords: dict[str, Any] = {
        "over": {"T": hd.axis([0.5, 1.0])},
        "times": hd.axis(TIMES),
        "depth": 2,
        "expansion": hd.Pade(1),
        "observables": {"sz": SZ},
    }
    function = changes.pop("function", build)
    return hd.Sweep(function, **(keywords | changes))


def locked_build() -> Callable[..., Any]:
    lock = threading.Lock()

    def inner(T: float) -> Any:
        with lock:
            return build(T)

    return inner


def config(old: str, new: str) -> Any:
    assert old in PLAIN
    return to_sweep(parse(PLAIN.replace(old, new), "test.toml"))


UNITS = """
[system]
unit = "cm^-1"
hamiltonian = [[100.0, 50.0], [50.0, 0.0]]
[[bath]]
kind = "drude-lorentz"
{fields}
[sweep.axes]
{axes}
[solve]
times = {{ start = 0, stop = 100, step = 10, unit = "fs" }}
depth = 2
expansion = "pade 1"
[output]
store = "x.zarr"
"""
AXES = {
    "bare": "{ values = [1, 2] }",
    "tau": '{ values = [50, 100], unit = "fs" }',
    "wide": '{ values = [50, 100], unit = "cm^-1" }',
}


def in_units(field: str, text: str) -> Any:
    """A configuration with [system] unit, one of whose fields is `text`."""
    fields = {"lam": '"35 cm^-1"', "gamma": '"1/(50 fs)"', "T": '"300 K"'} | {field: text}
    axes = {name: table for name, table in AXES.items() if text == f'"{name}"'}
    filled = [
        "\n".join(f"{name} = {value}" for name, value in rows.items()) for rows in (fields, axes)
    ]
    return to_sweep(parse(UNITS.format(fields=filled[0], axes=filled[1]), "test.toml"))


# (what is wrong, the call, what the message must name)
WRONG: list[tuple[str, Callable[[], Any], str]] = [
    ("H not Hermitian", lambda: hd.Problem([[0, 1], [0, 0]]), "`H`"),
    ("H not square", lambda: hd.Problem([[0, 1, 2], [1, 0, 2]]), "`H`"),
    ("H with NaN", lambda: hd.Problem([[NAN, 0], [0, 1]]), "`H`"),
    ("H not numbers", lambda: hd.Problem("H"), "`H`"),
    ("Q not Hermitian", lambda: hd.Coupling([[0, 1], [0, 0]], bath()), "`Q`"),
    ("Q with NaN", lambda: hd.Coupling([[NAN, 0], [0, 1]], bath()), "`Q`"),
    ("Q of another size",
     lambda: hd.Problem(H, [hd.Coupling(np.eye(3), bath())]), "`couplings[0]`"),
    ("correlation not symmetric",
     lambda: hd.Coupling([SZ, SZ], bath(), correlation=[[1, 0.5], [0, 1]]), "`correlation`"),
    ("correlation not positive",
     lambda: hd.Coupling([SZ, SZ], bath(), correlation=[[1, 2], [2, 1]]), "`correlation`"),
    ("correlation of another size",
     lambda: hd.Coupling([SZ, SZ], bath(), correlation=np.eye(3)), "`correlation`"),
    ("bath not a bath", lambda: hd.Coupling(SZ, 3.0), "`bath`"),
    ("negative T", lambda: bath(T=-1.0), "`T`"),
    ("NaN T", lambda: bath(T=NAN), "`T`"),
    ("negative lam", lambda: bath(lam=-0.1), "`lam`"),
    ("lam a string", lambda: bath(lam="35 cm^-1"), "`lam`"),
    ("gamma 0", lambda: bath(gamma=0.0), "`gamma`"),
    ("lam and alpha both",
     lambda: hd.UnderdampedBrownian(lam=1.0, alpha=1.0, gamma=0.1, w0=1.0, T=1.0), "`alpha`"),
    ("w0 negative", lambda: hd.UnderdampedBrownian(lam=1.0, gamma=0.1, w0=-1.0, T=1.0), "`w0`"),
    ("c and gamma of different lengths", lambda: hd.Exponents(c=[1, 2], gamma=[1]), "`gamma`"),
    ("growing exponent", lambda: hd.Exponents(c=[1], gamma=[-1]), "`gamma`"),
    ("c with NaN", lambda: hd.Exponents(c=[NAN], gamma=[1]), "`c`"),
    ("Lindblad of another size", lambda: hd.Problem(H, lindblad=[np.eye(3)]), "`lindblad[0]`"),
    ("drive operator not Hermitian",
     lambda: evolve(hd.Problem(H, drives=[(np.cos, [[0, 1], [0, 0]])])), "`H1`"),
    ("drive not callable", lambda: hd.Problem(H, drives=[(3.0, SZ)]), "`f`"),
    ("Pade of -1", lambda: hd.Pade(-1), "`N`"),
    ("Matsubara of 1.5", lambda: hd.Matsubara(1.5), "`N`"),
    ("AAA of 0", lambda: hd.AAA(0.0), "`tol`"),
    ("Matsubara at T = 0",
     lambda: evolve(hd.Problem(H, [hd.Coupling(SZ, bath(T=0.0))]), expansion=hd.Matsubara(1)),
     "`expansion`"),
    ("depth -1", lambda: evolve(depth=-1), "`depth`"),
    ("depth 2.5", lambda: evolve(depth=2.5), "`depth`"),
    ("depth True", lambda: evolve(depth=True), "`depth`"),
    ("no depth", lambda: hd.evolve(problem(), KET, TIMES, expansion=hd.Pade(1)), "`depth`"),
    ("no expansion", lambda: hd.evolve(problem(), KET, TIMES, depth=2), "`expansion`"),
    ("expansion a number", lambda: evolve(expansion=3), "`expansion`"),
    ("times empty", lambda: evolve(times=[]), "`times`"),
    ("times descending", lambda: evolve(times=[0, 2, 1]), "`times`"),
    ("times with NaN", lambda: evolve(times=[0, NAN]), "`times`"),
    ("rho0 of another size", lambda: evolve(rho0=np.eye(3)), "`rho0`"),
    ("rho0 with infinity", lambda: evolve(rho0=[[np.inf, 0], [0, 0]]), "`rho0`"),
    ("tol 0", lambda: evolve(tol=0.0), "`tol`"),
    ("tol negative", lambda: evolve(tol=-1e-6), "`tol`"),
    ("tol below rounding", lambda: evolve(tol=1e-20), "rounding"),
    ("tol of a sweep below rounding", lambda: sweep(tol=1e-20), "rounding"),
    ("tol of an axis negative",
     lambda: sweep(over={"T": [0.5], "tol": [1e-6, -1.0]}), "`over['tol']`"),
    ("expansion a class", lambda: evolve(expansion=hd.Pade), "`expansion`"),
    ("expansion of a sweep a class",
     lambda: sweep(expansion=hd.Pade).plan(), "`expansion`"),
    ("client a string", lambda: sweep().run("x.zarr", client="tcp://host"), "`client`"),
    ("client of the check a string",
     lambda: sweep().check_convergence("x.zarr", client="tcp://host"), "`client`"),
    ("plan of no workers", lambda: sweep().plan(workers=0), "`workers`"),
    ("unknown method", lambda: evolve(method="euler"), "`method`"),
    ("unknown backend", lambda: evolve(backend="fortran"), "`backend`"),
    ("unknown save", lambda: evolve(save=("everything",)), "`save`"),
    ("threads 0", lambda: evolve(threads=0), "`threads`"),
    ("observable of another size", lambda: evolve(observables={"x": np.eye(3)}), "`observables"),
    ("too many ADOs",
     lambda: evolve(hd.Problem(H, [hd.Coupling(SZ, bath())] * 20), depth=30), "`depth`"),
    ("duplicate axis value", lambda: sweep(over={"T": hd.axis([1.0, 1.0], "K")}), "`over['T']`"),
    ("axis empty", lambda: hd.axis([]), "`values`"),
    ("axis with NaN", lambda: hd.axis([NAN]), "`values`"),
    ("axis unit unknown", lambda: hd.axis([1.0], "parsec"), "`unit`"),
    ("axis in Hz", lambda: hd.axis([1.0], "Hz"), "Hz"),
    ("axis not taken by build",
     lambda: sweep(over={"T": hd.axis([1.0]), "x": hd.axis([1.0])}), "x"),
    ("sweep of an unknown backend", lambda: sweep(backend="fortran"), "`backend`"),
    ("samples 0", lambda: sweep(samples=0), "`samples`"),
    ("seed negative", lambda: sweep(samples=2, seed=-1), "`seed`"),
    ("build not callable", lambda: sweep(function=3), "`build`"),
    ("times of the wrong dimension", lambda: sweep(times=hd.axis(TIMES, "K")), "`times`"),
    ("temperature in fs", lambda: quantity("300 fs", "temperature", name="T"), "`T`"),
    ("energy in K*s", lambda: quantity("35 K*s", "energy", name="lam"), "`lam`"),
    ("energy in Hz", lambda: quantity("35 Hz", "energy", name="lam"), "hertz"),
    ("TOML: unknown key", lambda: config("depth = 2", "depth = 2\nstepsize = 1"), "stepsize"),
    ("TOML: unknown table", lambda: config("[output]", "[outputs]"), "did you mean `output`"),
    ("TOML: syntax", lambda: config("depth = 2", "depth = = 2"), "TOML"),
    ("TOML: no axis of that name", lambda: config('T = "T"', 'T = "temp"'), "`T`"),
    ("TOML: idle axis", lambda: config('T = "T"', "T = 0.5"), "T"),
    ("TOML: bath field missing", lambda: config("gamma = 0.5\n", ""), "`gamma`"),
    ("TOML: expansion", lambda: config("pade 1", "pade"), "`expansion`"),
    ("TOML: coupling", lambda: config('coupling = "sz"', 'coupling = "site 3"'), "`coupling`"),
    ("TOML: ragged Hamiltonian", lambda: config("[0.5, -0.25]", "[0.5]"), "`hamiltonian`"),
    ("TOML: plain lam beside a unit", lambda: in_units("lam", "35"), "`lam`"),
    ("TOML: plain gamma beside a unit", lambda: in_units("gamma", "0.5"), "`gamma`"),
    ("TOML: plain T beside a unit", lambda: in_units("T", "300"), 'write for example T = "300 K"'),
    ("TOML: plain axis beside a unit", lambda: in_units("lam", '"bare"'), "axis `bare`"),
    ("TOML: axis of another dimension", lambda: in_units("gamma", '"tau"'), "`gamma`"),
    ("TOML: temperature from an energy axis", lambda: in_units("T", '"wide"'), "`T`"),
    ("TOML: time axis without [system] unit",
     lambda: config("values = [0.5, 1.0] }", 'values = [50, 100], unit = "fs" }'), "`T`"),
    ("TOML: no such file", lambda: read("missing.toml"), "missing.toml"),
    ("TOML: no such example", lambda: read("fnord"), "fnord"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "name"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_one_clear_sentence(call: Callable[[], Any], name: str) -> None:
    with pytest.raises((InputError, TooLarge)) as caught:
        call()
    message = str(caught.value)
    assert name in message
    assert "\n" not in message and 20 < len(message) < 400


def test_axes_and_texts_with_units_are_taken() -> None:
    for field in ("lam", "gamma"):
        assert list(in_units(field, '"wide"').over) == ["wide"]


def test_a_locked_build_is_refused_before_submission(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lock"):
        sweep(function=locked_build()).run(str(tmp_path / "s.zarr"))
    assert not (tmp_path / "s.zarr").exists()


def test_an_unknown_kind_of_url_is_refused() -> None:
    for use in (sweep().run, sweep().plan, hd.open):
        with pytest.raises(StoreError, match="`store` must be a path or a URL that can be reached"):
            use("nowhere://bucket/x.zarr")


@pytest.mark.parametrize("name", ["", " ", b"x.zarr", None, 3])
def test_a_store_needs_a_name(name: Any) -> None:
    for use in (sweep().run, sweep().plan if name is not None else sweep().run, hd.open):
        with pytest.raises(StoreError, match="`store` must be the path of a folder"):
            use(name)


def test_a_file_is_no_store(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    for use in (sweep().run, sweep().plan, hd.open):
        with pytest.raises(StoreError, match="must be a folder, got the file"):
            use(f"{file}/" if use == hd.open else file)


def test_an_asynchronous_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import Client

    async def use() -> None:
        how = {"asynchronous": True, "timeout": 0.01, "set_as_default": False}
        async with Client("tcp://127.0.0.1:9", **how) as client:
            as_runner(client)

    monkeypatch.setattr(Client, "_start", _nothing)
    monkeypatch.setattr(Client, "_close", _nothing)
    with pytest.raises(InputError, match="`client` must be a Dask client that is not asynchronous"):
        asyncio.run(use())


async def _nothing(*_: Any, **__: Any) -> None:
    """Stands for connecting and closing."""


def test_numbers_of_numpy_are_numbers() -> None:
    kinds = {"samples": np.int64(2), "seed": np.int32(1), "tol": np.float32(1e-6)}
    made = hd.Sweep(lambda T, rng: build(T), over={"T": [1.0]}, times=TIMES, depth=np.int64(2),
                    expansion=hd.Pade(1), error=np.float32(1e-3), **kinds)  # fmt: skip
    assert len(made.digest) == 32
    assert made.specification["depth"] == "2"


def test_a_store_of_another_sweep_is_refused(tmp_path: Path) -> None:
    from heomdask.ensemble.runner import SerialRunner

    store = str(tmp_path / "s.zarr")
    sweep().run(store, client=SerialRunner())
    with pytest.raises(StoreError, match="depth"):
        sweep(depth=3).run(store, client=SerialRunner())


def test_an_unwritable_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match="file"):
        sweep().run(str(tmp_path / "file" / "s.zarr"))


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.zarr").mkdir()
    (tmp_path / "s.zarr" / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError):
        sweep().run(str(tmp_path / "s.zarr"))
    assert (tmp_path / "s.zarr" / "thesis.tex").read_text() == "precious"


def test_all_errors_are_ours() -> None:
    assert issubclass(InputError, HeomdaskError)
    assert len(WRONG) >= 40


def test_zero_coupling_and_depth_zero_are_legal() -> None:
    free = hd.Problem(H, [hd.Coupling(SZ, bath(lam=0.0))])
    exact = evolve(hd.Problem(H), depth=0, tol=1e-9).rho
    np.testing.assert_allclose(evolve(free, depth=3, tol=1e-9).rho, exact, atol=1e-8)
    np.testing.assert_allclose(evolve(free, depth=0, tol=1e-9).rho, exact, atol=1e-8)
