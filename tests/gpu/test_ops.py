"""The embedding ops on GPUs without one: registered, and with the CPU as a GPU."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from gpu.support.building import BUILD, NVCC, build, run
from support.facts import FACTS
from support.places import ROOT, environment

needs_nvcc = pytest.mark.skipif(
    NVCC is None, reason="nvcc is not in PATH: no ops were compiled for GPUs"
)


def tensorflow(library: str, *command: str | Path, **settings: str) -> str:
    """The output of Python with this library as libopwright.so."""
    build(library)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        patch.setenv("OPWRIGHT_LIBRARY", str(BUILD / f"lib{library}.so"))
        patch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        return run(sys.executable, *command)


KERNELS = """
import json, sys
import opwright
from tensorflow.python.framework.kernels import get_registered_kernels_for_op
from opwright_runtime import native
from opwright_runtime.kernels import kernels
rows = {
    name: {row.device: row.host_memory for row in kernels(name)}
    for name in sys.argv[1:]
}
arguments = {
    name: [a.name for a in (*op.inputs, *op.outputs)]
    for name in sys.argv[1:]
    for op in [opwright.op_class(name).op_def]
}
first = [
    name
    for name in sys.argv[1:]
    for priority in [{
        kernel.device_type: kernel.priority
        for kernel in get_registered_kernels_for_op(name).kernel
    }]
    if priority["CPU"] > priority["GPU"]
]
print(json.dumps([rows, arguments, native.cuda(), first]))
"""
# By op with tensors on the device: its arguments on the host.
ENQUEUE, DYNAMIC = "EnqueueTPUEmbedding", "DynamicEnqueueTPUEmbedding"
ON_DEVICE = {
    **{
        f"{ENQUEUE}{what}Batch": ["mode_override"]
        for what in (
            "Integer",
            "Sparse",
            "SparseTensor",
            "RaggedTensor",
            "ArbitraryTensor",
        )
    },
    **{
        f"{DYNAMIC}{what}TensorBatch": ["mode_override", "device_ordinal"]
        for what in ("Ragged", "Arbitrary")
    },
    "RecvTPUEmbeddingActivations": [],
    "SendTPUEmbeddingGradients": ["learning_rates"],
    "TPUEmbeddingActivations": [],
}


@needs_nvcc
def test_gpu_kernels_are_registered_for_promised_ops() -> None:
    """Every op that the opdefs promise has a kernel for GPUs, with or without one."""
    promised = [
        path.stem
        for path in (ROOT / "opdefs" / "tpu").glob("*.yaml")
        if "\nkernels: {CPU: opwright, GPU: opwright}\n" in path.read_text("utf-8")
    ]
    assert len(promised) == FACTS["embedding_ops_on_gpu"]
    said = tensorflow("opwright_embedding_gpu", "-c", KERNELS, *promised)
    (answer,) = (line for line in said.splitlines() if line.startswith("[{"))
    rows, arguments, cuda, cpu_first = json.loads(answer)
    assert cuda
    # TensorFlow puts an op on the device whose kernel has the highest priority.
    assert sorted(cpu_first) == sorted(name for name in promised if ENQUEUE in name)
    for name in promised:
        assert rows[name].keys() >= {"CPU", "GPU"}, name
        expected = ON_DEVICE.get(name, arguments[name])
        assert sorted(rows[name]["GPU"]) == sorted(expected), name


# Tests with several cores, with tables that are too large to copy, and with gradients
# that the call itself refuses.
NOT_ON_GPUS = (
    "several_cores",
    "ids_beyond_32_bits and not cut",
    "test_send[12]",
    "test_send[13]",
    "test_send[14]",
)


@needs_nvcc
def test_gpu_library_without_driver_runs_cpu_kernels() -> None:
    """Without a GPU and its driver, the CPU kernels run."""
    tests = ROOT / "tests" / "embedding" / "test_enqueue.py"
    said = tensorflow("opwright_embedding_gpu", "-m", "pytest", "-q", tests)
    assert " passed" in said
    # TensorFlow has functions of these names too, for a runtime of its own.
    names = run("nm", "-D", BUILD / "libopwright_embedding_gpu.so")
    assert not re.search(r" U (cuda|__cuda|cu[A-Z])", names)


@needs_nvcc
def test_embedding_ops_on_cpu_device_pass_their_tests() -> None:
    """The ops' own tests, with their tables on a device that is the CPU."""
    folder = ROOT / "tests" / "embedding"
    names = ("numbers", "order", "bad_input", "enqueue")
    tests = [folder / f"test_{name}.py" for name in names]
    left_out = " or ".join(
        f"({what})" for what in ("avx2", "avx512", "neon", *NOT_ON_GPUS)
    )
    said = tensorflow(
        "opwright_embedding_on_cpu",
        "-m",
        "pytest",
        "-q",
        "-k",
        f"not ({left_out})",
        *tests,
    )
    assert int(re.search(r"(\d+) passed", said)[1]) > 150
    assert " failed" not in said


@needs_nvcc
def test_embedding_ops_with_ids_on_device_pass_their_tests() -> None:
    """The same numbers, with ids that the device has before they are enqueued."""
    folder = ROOT / "tests" / "embedding"
    names = ("numbers", "order", "enqueue")
    tests = [folder / f"test_{name}.py" for name in names]
    tests.append(ROOT / "tests" / "gpu" / "support" / "ids_on_device.py")
    left_out = " or ".join(
        f"({what})" for what in ("avx2", "avx512", "neon", *NOT_ON_GPUS)
    )
    said = tensorflow(
        "opwright_embedding_on_cpu",
        "-m",
        "pytest",
        "-q",
        "-k",
        f"not ({left_out})",
        *tests,
        OPWRIGHT_IDS_ON_DEVICE="1",
    )
    assert int(re.search(r"(\d+) passed", said)[1]) > 70
    assert " failed" not in said


CHECKPOINT = """
checkpoint = tf.train.Checkpoint(tables=tables)
path = checkpoint.save("/tmp/opwright-docs/films-of-a-gpu")
next_loss = float(train(ids, labels))
checkpoint.restore(path)
assert float(train(ids, labels)) == next_loss
print('to its end')
"""


@needs_nvcc
def test_gpu_page_program_runs_and_restores_checkpoint() -> None:
    """The program of gpu.md with another device, and a checkpoint after it."""
    page = (ROOT / "docs" / "how-to" / "gpu.md").read_text("utf-8")
    (program,) = re.findall("```python\n(.*?)```", page, re.DOTALL)
    assert program.count('"/gpu:0"') == 1
    program = program.replace('"/gpu:0"', '"/cpu:0"')
    said = tensorflow("opwright_embedding_on_cpu", "-c", program + CHECKPOINT)
    assert "to its end\n" in said
    # With another CUDA than TensorFlow's, the configuration logs a warning.
    cuda = json.loads((BUILD / "libopwright_embedding_on_cpu.json").read_text())["cuda"]
    theirs = tf.sysconfig.get_build_info().get("cuda_version", cuda)
    other = theirs.split(".")[0] != cuda.split(".")[0]
    words = f"built with CUDA {'.'.join(cuda.split('.')[:2])} and TensorFlow with CUDA"
    assert (words in said) == other


@needs_nvcc
def test_embedding_ops_on_cpu_device_pass_the_fuzzer() -> None:
    """The fuzzer calls them with random and damaged arguments."""
    tensorflow(
        "opwright_embedding_on_cpu",
        "-m",
        "fuzz",
        "2000",
        "--cores",
        "1",
        "--families",
        "embedding",
        "--kinds",
        "eager",
        "graph",
    )


@needs_nvcc
def test_embedding_ops_late_refusals_pass() -> None:
    tests = ROOT / "tests" / "gpu" / "support" / "late_refusals.py"
    said = tensorflow("opwright_embedding_on_cpu", "-m", "pytest", "-q", tests)
    assert " passed" in said


@needs_nvcc
def test_gpu_check_embedding_rows_on_cpu_device_pass() -> None:
    """The rows of tools/gpu_check.py about TPU embeddings."""
    tests = ROOT / "tests" / "gpu" / "test_tensorflow.py"
    said = tensorflow(
        "opwright_embedding_on_cpu",
        "-m",
        "pytest",
        "-q",
        "-k",
        "test_gpu_check_row_on_cpu and TPU",
        tests,
    )
    assert "8 passed" in said
