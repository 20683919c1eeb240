"""Products of matrices in all forms that broadcasting allows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.graph.backward.builder import backward_graph
from tests.contracts.backward_rule import check_rule, distinct, in_memory, node_model

OPSETS = st.sampled_from([7, 9, 11, 13, 22])


@given(
    transposed=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    added=st.sampled_from([None, (), (1,), (4,), (2, 1), (1, 4), (2, 4)]),
    factors=st.sampled_from([(1.0, 1.0), (0.5, -2.0)]),
    opset=OPSETS,
)
@settings(max_examples=25, deadline=None)
def test_gemm(
    transposed: tuple[int, int], added: tuple[int, ...] | None, factors: tuple[float, float], opset: int
) -> None:
    a, b = distinct((2, 3)), distinct((3, 4), seed=1)
    rest = [] if added is None else [distinct(added, seed=2)]
    if not rest and opset < 11:
        rest = [distinct((4,), seed=2)]
    inputs = [a.T if transposed[0] else a, b.T if transposed[1] else b, *rest]
    settings_ = {"transA": transposed[0], "transB": transposed[1], "alpha": factors[0], "beta": factors[1]}
    check_rule("Gemm", *(np.ascontiguousarray(array) for array in inputs), opset=opset, **settings_)


SHAPES = [
    ((3,), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((2, 4, 3), (3,)),
    ((3,), (2, 3, 4)),
    ((2, 2, 3), (3, 4)),
    ((2, 3), (2, 3, 2)),
    ((2, 2, 3), (2, 3, 2)),
    ((2, 1, 2, 3), (1, 3, 3, 2)),
    ((1, 2, 3), (2, 2, 3, 2)),
    ((2, 2, 2, 3), (3, 2)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    for opset in (7, 13):
        check_rule("MatMul", distinct(left), distinct(right, seed=1), opset=opset)


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("bhid,bhjd->bhij", (1, 2, 3, 2), (1, 2, 4, 2)),
    ("bij,jk->bik", (2, 2, 3), (3, 2)),
    ("i,j->ij", (3,), (4,)),
    ("ij,kl->ik", (2, 3), (2, 4)),
    ("...ij,...jk->...ik", (2, 2, 3), (2, 3, 2)),
    ("...i,...i->...", (2, 3), (2, 3)),
    ("ij->ji", (2, 3)),
    ("ij->i", (2, 3)),
    ("ijk->", (2, 3, 2)),
    ("ij,jk,kl->il", (2, 3), (3, 2), (2, 2)),
]


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda case: str(case[0]))
def test_einsum(case: tuple[str, *tuple[tuple[int, ...], ...]]) -> None:
    arrays = [distinct(shape, seed=seed) for seed, shape in enumerate(case[1:])]
    check_rule("Einsum", *arrays, opset=12, equation=case[0])


def test_a_diagonal_has_no_rule() -> None:
    proto = node_model(
        "Einsum",
        [np.zeros((3, 3))],
        dtype=np.dtype(np.float32),
        opset=12,
        outputs=1,
        attributes={"equation": "ii->i"},
    )
    assert "diagonal" in backward_graph(in_memory(proto), ["x0"], shapes={"y0": (3,)}).without_rule["x0"]
