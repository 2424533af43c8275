"""Matrices, Fourier transforms and sparse matrices."""

import numpy as np
import tensorflow as tf

from support.equivalence.samples.kit import Samples, complexes, positive, real, tensor

SAMPLES = Samples()

M = real(2, 3, 3) + 3 * np.eye(3, dtype=np.float32)
SYMMETRIC = M @ M.transpose(0, 2, 1)
RHS = real(2, 3, 2)
D = M.astype(np.float64)

# Products.
SAMPLES.add("MatMul", real(3, 2), real(4, 3), transpose_a=True, transpose_b=True)
SAMPLES.add("MatMul", real(2, 3), real(3, 4))
for adjoints in ({}, {"adj_x": True, "adj_y": True}):
    SAMPLES.each("BatchMatMul BatchMatMulV2", M, SYMMETRIC, **adjoints)
    SAMPLES.add("BatchMatMulV3", M, SYMMETRIC, Tout=tf.float32, **adjoints)
SAMPLES.add("BatchMatMulV2", complexes(2, 2), complexes(2, 2), adj_x=True)
SAMPLES.add(
    "SparseMatMul",
    real(3, 2),
    real(4, 3),
    transpose_a=True,
    transpose_b=True,
    a_is_sparse=True,
    b_is_sparse=True,
)
SAMPLES.add(
    "SparseMatMul", real(2, 3), tensor(real(3, 4), tf.bfloat16), a_is_sparse=True
)
SAMPLES.add("Einsum", [real(2, 3), real(3, 4)], equation="ij,jk->ki")
SAMPLES.add("XlaEinsum", real(2, 3), real(3, 4), equation="ij,jk->ik")
SAMPLES.add("TridiagonalMatMul", real(1, 3), real(1, 3), real(1, 3), RHS[0])
SAMPLES.add(
    "TridiagonalSolve",
    real(3, 3) + 4 * np.array([[0], [1], [0]], np.float32),
    real(3, 2),
    partial_pivoting=False,
)
SAMPLES.add(
    "TridiagonalSolve",
    real(3, 3) + 4 * np.array([[0], [1], [0]], np.float32),
    real(3, 2),
    perturb_singular=True,
)

# Factors and solutions.
SAMPLES.each("Cholesky SelfAdjointEig", SYMMETRIC)
SAMPLES.add("SelfAdjointEigV2", SYMMETRIC)
SAMPLES.each("MatrixDeterminant LogMatrixDeterminant MatrixInverse", M)
SAMPLES.add("MatrixInverse", D, adjoint=True)
SAMPLES.add("MatrixInverse", tensor(complexes(2, 2)), adjoint=True)
SAMPLES.add("MatrixLogarithm", complexes(2, 2) + 3 * np.eye(2, dtype=np.complex64))
SAMPLES.add("MatrixSquareRoot", SYMMETRIC)
SAMPLES.add("MatrixExponential", M)
SAMPLES.add("CholeskyGrad", np.linalg.cholesky(SYMMETRIC), M)
SAMPLES.add("Lu", M, output_idx_type=tf.int64)
SAMPLES.add("Qr", real(4, 2), full_matrices=True)
SAMPLES.add("Qr", real(2, 3, 3))
SAMPLES.add("Svd", real(3, 2), full_matrices=True)
SAMPLES.add("Svd", real(3, 2))
SAMPLES.add("Eig", M, Tout=tf.complex64)
SAMPLES.each("MatrixSolve MatrixTriangularSolve BandedTriangularSolve", M, RHS)
SAMPLES.add("MatrixSolve", M, RHS, adjoint=True)
SAMPLES.add("MatrixSolveLs", real(4, 2), real(4, 1), 0.1, fast=False)
SAMPLES.add("MatrixSolveLs", real(4, 2), real(4, 1), 0.1)
SAMPLES.add("MatrixTriangularSolve", M, RHS, lower=False, adjoint=True)
SAMPLES.add(
    "BandedTriangularSolve", positive(2, 3), real(3, 2), lower=False, adjoint=True
)

# The batch ops that the ones above replaced.
SAMPLES.each("BatchCholesky BatchSelfAdjointEig", SYMMETRIC)
SAMPLES.add("BatchSelfAdjointEigV2", SYMMETRIC)
SAMPLES.add("BatchCholeskyGrad", np.linalg.cholesky(SYMMETRIC), M)
SAMPLES.each("BatchMatrixDeterminant", M)
SAMPLES.add("BatchMatrixInverse", M, adjoint=True)
SAMPLES.add("BatchMatrixSolve", M, RHS, adjoint=True)
SAMPLES.add("BatchMatrixSolveLs", M, RHS, 0.1, fast=False)
SAMPLES.add("BatchMatrixTriangularSolve", M, RHS, lower=False)
SAMPLES.add("BatchSvd", real(3, 2), full_matrices=True)

# Fourier.
SAMPLES.each("FFT IFFT FFT2D IFFT2D FFT3D IFFT3D", complexes(2, 4, 4))
SAMPLES.add("FFT", tensor(complexes(2, 4, dtype=np.complex128)))
SAMPLES.add("RFFT", real(2, 6), [4])
SAMPLES.add("RFFT2D", real(4, 6), [4, 4])
SAMPLES.add("RFFT3D", real(2, 4, 6), [2, 4, 4])
SAMPLES.add("IRFFT", complexes(2, 4), [6])
SAMPLES.add("IRFFT2D", complexes(4, 4), [4, 6])
SAMPLES.add("IRFFT3D", complexes(2, 4, 4), [2, 4, 6])
SAMPLES.add("RFFT", tensor(real(2, 6, dtype=np.float64)), [6], Tcomplex=tf.complex128)
SAMPLES.add(
    "RFFT2D", tensor(real(4, 6, dtype=np.float64)), [4, 6], Tcomplex=tf.complex128
)
SAMPLES.add(
    "IRFFT", tensor(complexes(2, 4, dtype=np.complex128)), [6], Treal=tf.float64
)
SAMPLES.add(
    "IRFFT2D", tensor(complexes(4, 4, dtype=np.complex128)), [4, 6], Treal=tf.float64
)


@SAMPLES.program()
def values_without_vectors(run):
    # The vectors that are not computed are not set either.
    run.opaque.SelfAdjointEigV2(SYMMETRIC, compute_v=False)
    run.opaque.Svd(real(3, 2), compute_uv=False)
    run.opaque.Eig(M, Tout=tf.complex64, compute_v=False)


def csr(run, values, rows=3, columns=3):
    """A sparse matrix with values on its diagonal and in its first row."""
    indices = [[0, 0], [0, 2], [1, 1], [2, 2]]
    return run.SparseTensorToCSRSparseMatrix(
        np.int64(indices), values, np.int64([rows, columns])
    )


@SAMPLES.program()
def sparse_matrices(run):
    a = csr(run, np.float32([4, 1, 5, 6]))
    run.CSRSparseMatrixToDense(a, type=tf.float32)
    run.CSRSparseMatrixToSparseTensor(a, type=tf.float32)
    again = run.DenseToCSRSparseMatrix(real(3, 3), np.int64([[0, 0], [1, 1]]))
    run.CSRSparseMatrixToDense(again, type=tf.float32)


@SAMPLES.program()
def sparse_times_dense(run):
    a = csr(run, np.float32([4, 1, 5, 6]))
    run.SparseMatrixMatMul(a, real(3, 2), transpose_a=True)
    run.SparseMatrixMatMul(a, real(3, 2), transpose_output=True)


@SAMPLES.program()
def sparse_transposed(run):
    a = csr(run, np.float32([4, 1, 5, 6]))
    turned = run.SparseMatrixTranspose(a, type=tf.float32, conjugate=True)
    run.CSRSparseMatrixToDense(turned, type=tf.float32)


@SAMPLES.program()
def sparse_times_sparse(run):
    a, b = (csr(run, np.float32([4, 1, 5, 6])) for _ in range(2))
    product = run.SparseMatrixSparseMatMul(a, b, type=tf.float32, transpose_a=True)
    run.CSRSparseMatrixToDense(product, type=tf.float32)


@SAMPLES.program()
def parts_of_sparse_matrices(run):
    a = csr(run, np.float32([4, 1, 5, 6]))
    run.CSRSparseMatrixComponents(a, 0, type=tf.float32)
    run.SparseMatrixNNZ(a)


@SAMPLES.program()
def sparse_cholesky(run):
    a = csr(run, np.float32([4, 0, 5, 6]))
    order = run.SparseMatrixOrderingAMD(a)
    factor = run.SparseMatrixSparseCholesky(a, order, type=tf.float32)
    run.CSRSparseMatrixToDense(factor, type=tf.float32)
