"""Which addresses of a cluster a program is warned of."""

from __future__ import annotations

import time

import pytest

from opwright_runtime.embedding.cluster_addresses import public_addresses
from support.processes import run_code

# Numbers of the internet's that belong to resolvers.
PUBLIC = ["8.8.8.8:80", "[2001:4860:4860::8888]:80", "[::ffff:8.8.8.8]:80", "1.1.1.1"]
OWN = [
    "localhost:23411",
    "127.0.0.1:23411",
    "127.1.2.3:1",
    "[::1]:23411",
    "10.0.0.1:80",
    "172.16.5.4:80",
    "192.168.1.1:80",
    "[fd00::1]:80",
    "169.254.1.1:80",
    "[fe80::1%eth0]:80",
    "100.64.0.1:80",
    "[::ffff:10.0.0.1]:80",
    "",
    ":80",
    "localhost",
]


@pytest.mark.parametrize("address", OWN)
def test_public_addresses_with_an_own_address_has_none(address: str) -> None:
    assert public_addresses([address]) == []


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_with_a_public_address_has_it(address: str) -> None:
    assert public_addresses(["127.0.0.1:1", address]) == [address]


def test_public_addresses_with_names_that_nothing_resolves_ends_in_time() -> None:
    started = time.monotonic()
    names = [f"host-{n}.invalid:80" for n in range(50)]
    assert public_addresses([*names, "8.8.8.8:80"]) == ["8.8.8.8:80"]
    assert time.monotonic() - started < 15


def test_software_strategy_with_a_public_address_warns_before_it_listens() -> None:
    code = """
import warnings
import tensorflow as tf
from opwright import tpu
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    tf.train.ClusterSpec({"worker": ["127.0.0.1:23411", "8.8.8.8:23411"]}),
    task_type="worker", task_id=0, rpc_layer="grpc")
warnings.filterwarnings("error", message="software_strategy: the cluster has addresses")
try:
    tpu.software_strategy(resolver)
except UserWarning as warning:
    print("warned:", warning)
"""
    done = run_code(code, timeout=120)
    assert (
        "nor private: 8.8.8.8:23411. TensorFlow's servers listen on" in done.stdout
    ), (done.stdout + done.stderr)


def test_warn_of_public_addresses_twice_warns_once() -> None:
    code = """
import warnings
from opwright_runtime.embedding.cluster_addresses import warn_of_public_addresses
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    warn_of_public_addresses(["10.0.0.1:80"], 1)
    print("private:", len(caught))
    for _ in range(2):
        warn_of_public_addresses(["8.8.8.8:80"], 1)
print("public:", len(caught), caught[0].filename)
"""
    done = run_code(code, timeout=120)
    assert "private: 0\npublic: 1 <string>" in done.stdout, done.stdout + done.stderr
