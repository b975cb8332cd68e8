"""The generator on random problems: against brute force, and its exact symmetries."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from heomdask.backends.numpy_ import NumpyBackend
from heomdask.generator.build import ado_scale, build_plan, named_power, structure
from heomdask.generator.real_form import pack, unpack
from heomdask.hierarchy.index_set import index_set
from heomdask.hierarchy.truncation import Depth
from heomdask.partition.part import part_of
from heomdask.testing.reference import dense_generator, simplex
from heomdask.testing.strategies import shapes

FUNCTIONS = {"f": 0.7, "g": -1.3, "h": 0.4}
few = settings(max_examples=60, deadline=None)


def build(shape, n_members=1, form=None):
    members = shape.members(n_members)
    assert len({structure(m) for m in members}) == 1
    ados = index_set(Depth(shape.depth), members[0].n_modes)
    return members, ados, build_plan(members, ados, form=form)


def scalars(plan):
    """Values of the named scalars at a moment when the functions are `FUNCTIONS`."""
    parsed = [named_power(name) for name in plan.names]
    return np.array([[FUNCTIONS[function] ** power] for function, power in parsed])


def reference(member, ados):
    """The brute-force generator on stored ADOs."""
    matrix = dense_generator(member, simplex(member.n_modes, int(ados.level.max())), FUNCTIONS)
    scale = np.repeat(ado_scale(member, ados), member.d**2)
    return matrix * scale / scale[:, None]


def largest(matrix):
    """max |G|; not below 0.1, for a G that cancels although its parts are of order 1 (d = 1)."""
    return max(np.abs(matrix).max(), 0.1)


def product(matrix, x):
    """max of |G| |X|, with the same floor."""
    return max((abs(matrix) @ np.abs(x).ravel()).max(), 0.1)


def random_state(rng, plan, hermitian=False):
    shape = (plan.n_cols, plan.d, plan.d)
    x = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return (x + x.conj().swapaxes(1, 2)) / 2 if hermitian else x


@few
@given(shapes())
def test_complex_form_equals_brute_force(shape):
    members, ados, plan = build(shape, 2, "complex")
    for m, member in enumerate(members):
        expected = reference(member, ados)
        found = plan.to_sparse(m, scalars(plan)).toarray()
        assert np.abs(found - expected).max() <= 1e-13 * largest(expected)


@few
@given(shapes(real=True))
def test_real_form_equals_brute_force(shape):
    members, ados, plan = build(shape, 2)
    assert plan.form == "real"
    rng = np.random.default_rng(shape.seed)
    for m, member in enumerate(members):
        matrix = reference(member, ados)
        x = random_state(rng, plan, hermitian=True)
        expected = (matrix @ x.ravel()).reshape(x.shape)
        packed = plan.to_sparse(m, scalars(plan)) @ pack(x).ravel()
        found = unpack(packed.reshape(x.shape))
        assert np.abs(found - expected).max() <= 1e-13 * product(matrix, x)
        np.testing.assert_allclose(found, found.conj().swapaxes(1, 2), rtol=0, atol=0)


@few
@given(shapes(), st.booleans())
def test_the_numpy_backend_applies_what_to_sparse_says(shape, as_complex):
    _, _, plan = build(shape, 3, "complex" if as_complex else None)
    backend = NumpyBackend()
    compiled = backend.compile(plan)
    rng = np.random.default_rng(shape.seed)
    host = np.stack([random_state(rng, plan) for _ in range(3)], axis=-1)
    host = host.real.copy() if plan.form == "real" else host
    x, out = backend.put(compiled, host), backend.empty(compiled)
    backend.apply(compiled, x, out, scalars=scalars(plan))
    image = backend.fetch(compiled, out)
    for m in range(3):
        matrix = plan.to_sparse(m, scalars(plan))
        difference = image[..., m].ravel() - matrix @ host[..., m].ravel()
        assert np.abs(difference).max() <= 1e-13 * product(matrix, host[..., m])


@few
@given(shapes(), st.booleans())
def test_adjoint_identity(shape, as_complex):
    _, _, plan = build(shape, 2, "complex" if as_complex else None)
    for m in range(2):
        forward = plan.to_sparse(m, scalars(plan)).toarray()
        backward = plan.adjoint().to_sparse(m, scalars(plan)).toarray()
        assert np.abs(backward - forward.conj().T).max() <= 1e-14 * largest(forward)


@few
@given(shapes(real=True))
def test_trace_and_hermiticity_are_kept(shape):
    _, _, plan = build(shape, 1, "complex")
    rng = np.random.default_rng(shape.seed)
    x = random_state(rng, plan, hermitian=True)
    matrix = plan.to_sparse(0, scalars(plan))
    change = (matrix @ x.ravel()).reshape(x.shape)
    size = product(matrix, x)
    assert abs(np.trace(change[0])) <= 1e-13 * size
    assert np.abs(change - change.conj().swapaxes(1, 2)).max() <= 1e-13 * size


@few
@given(shapes())
def test_trace_of_the_reduced_density_matrix_is_kept_by_any_exponents(shape):
    _, _, plan = build(shape, 1, "complex")
    matrix = plan.to_sparse(0, scalars(plan)).toarray()
    trace = np.eye(plan.d).ravel() @ matrix[: plan.d**2]
    assert np.abs(trace).max() <= 1e-13 * largest(matrix)


@few
@given(shapes(), st.permutations(range(5)), st.integers(1, 5))
def test_a_member_is_the_same_whatever_its_companions(shape, order, count):
    members, ados, _ = build(shape, 5)
    chosen = order[:count]
    together = build_plan([members[m] for m in chosen], ados)
    for place, m in enumerate(chosen):
        alone = build_plan([members[m]], ados)
        assert len(alone.terms) == len(together.terms)
        for one, many in zip(alone.terms, together.terms, strict=True):
            assert one.transposed == many.transposed
            for a, b in zip(one.shifts, many.shifts, strict=True):
                assert alone.patterns[a.pattern] is together.patterns[b.pattern]
                assert a.name == b.name
                assert a.scalar[0] == b.scalar[place if len(b.scalar) > 1 else 0]
            for a, b in ((one.left, many.left), (one.right, many.right)):
                assert (a is None) == (b is None)
                if a is not None:
                    np.testing.assert_array_equal(a.of(0), b.of(place))


@few
@given(shapes(), st.data())
def test_rows_of_a_part_give_the_uncut_result(shape, data):
    _, ados, plan = build(shape, 2)
    index = np.array(
        data.draw(st.lists(st.integers(0, ados.n_ado - 1), min_size=1, max_size=ados.n_ado))
    )
    part = part_of(plan, np.isin(np.arange(ados.n_ado), index).astype(int), 1)
    columns, n_interior = part.columns, part.n_interior
    d2 = plan.d**2
    assert part.n_rows == len(np.unique(index))
    assert sorted(columns[: part.n_rows]) == np.unique(index).tolist()
    assert np.all(np.diff(columns[part.n_rows :]) > 0)
    whole = plan.to_sparse(1, scalars(plan)).toarray().reshape(ados.n_ado, d2, ados.n_ado, d2)
    found = part.to_sparse(1, scalars(plan)).toarray().reshape(part.n_rows, d2, len(columns), d2)
    rows = columns[: part.n_rows]
    np.testing.assert_array_equal(found, whole[rows][:, :, columns])
    unread = np.setdiff1d(np.arange(ados.n_ado), columns)
    assert not whole[rows][:, :, unread].any()
    assert not found[:n_interior, :, part.n_rows :].any()
