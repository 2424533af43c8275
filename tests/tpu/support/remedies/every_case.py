"""For each row of remedies.json a program that does not compile, and its remedy."""

from tpu.support.remedies import dtypes, host, kernels, shapes, sparse
from tpu.support.remedies.case import Case

CASES: tuple[Case, ...] = (
    *host.CASES,
    *kernels.CASES,
    *sparse.CASES,
    *shapes.CASES,
    *dtypes.CASES,
)
