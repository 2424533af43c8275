"""A training over several hosts on this machine: processes of one cluster.

Each host trains with its part of every global batch. `main` forks them, so that
TensorFlow is imported once; no op runs before the fork. Run by test_hosts.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from embedding.support.program import row_wise_optimizers
from opwright import tpu

tpu_embedding = tf.tpu.experimental.embedding

BATCH, STEPS = 8, 100
# Rows, width, ids a sample; by 2 and 4 hosts some rows are left over.
TABLES = {
    "sgd": (30, 8, 3),
    "adagrad": (101, 16, 5),
    "adam": (7, 3, 1),
    "ftrl": (50, 4, 2),
    **dict.fromkeys(row_wise_optimizers(0.1), (33, 5, 2)),
}


def free_ports(count: int) -> list[int]:
    """They lie below the ports of outgoing connections, which other tests use."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("localhost", port))
            ports.add(port)
    return list(ports)


def fork(
    hosts: int, body: Callable[[int, Any], None], seen: list[list[int]] | None = None
) -> list[int]:
    """A process for each host, which calls body(host, resolver); their ids.

    Args:
        seen: by host, the ports at which that one finds each; else free ones.
    """
    seen = seen or [free_ports(hosts)] * hosts
    children = []
    for host in range(hosts):
        addresses = [f"localhost:{port}" for port in seen[host]]
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": addresses}),
            task_type="worker",
            task_id=host,
            rpc_layer="grpc",
        )
        if pid := os.fork():
            children.append(pid)
            continue
        code = 1
        try:
            body(host, resolver if hosts > 1 else None)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return children


def wait(children: list[int], seconds: float) -> list[int | None]:
    """How each ended; None: it had to be killed."""
    end = time.monotonic() + seconds
    codes: dict[int, int | None] = {}
    while len(codes) < len(children) and time.monotonic() < end:
        for pid in set(children) - set(codes):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    for pid in set(children) - set(codes):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        codes[pid] = None
    return [codes[pid] for pid in children]


def initial(name: str) -> NDArray[np.float32]:
    rows, width, _ = TABLES[name]
    rng = np.random.default_rng(len(name) * rows)
    return rng.normal(size=(rows, width)).astype(np.float32)


def ids_of(step: int, name: str) -> NDArray[np.int64]:
    """Of a complete global batch, [samples, ids]; some rows are in every batch."""
    rows, _, count = TABLES[name]
    rng = np.random.default_rng(step * 1000 + rows)
    ids = rng.integers(0, rows, [BATCH, count])
    ids[:, 0] = np.where(rng.random(BATCH) < 0.3, 0, ids[:, 0])
    return ids


class Training:
    """The program of every host: tables, an optimizer each, and a dense variable."""

    def __init__(
        self,
        resolver: Any,
        timeout: float = 60.0,
        rate: float = 0.1,
        combiner: str = "sqrtn",
    ) -> None:
        self.strategy = tpu.software_strategy(resolver, timeout=timeout)
        self.hosts = self.strategy.num_replicas_in_sync
        self.host = resolver.task_id if resolver else 0
        self.samples = BATCH // self.hosts
        self.rate = tf.Variable(0.5, trainable=False)
        optimizers = {
            "sgd": tpu_embedding.SGD(lambda: self.rate),
            "adagrad": tpu_embedding.Adagrad(rate),
            "adam": tpu_embedding.Adam(0.01, lazy_adam=False),
            "ftrl": tpu_embedding.FTRL(0.1),
            **row_wise_optimizers(rate),
        }
        features = {
            name: tpu_embedding.FeatureConfig(
                tpu_embedding.TableConfig(
                    *TABLES[name][:2],
                    initializer=lambda shape, dtype, name=name: tf.constant(
                        initial(name)
                    ),
                    optimizer=optimizer,
                    combiner=combiner if name == "adagrad" else "mean",
                    name=name,
                ),
                output_shape=[self.samples],
            )
            for name, optimizer in optimizers.items()
        }
        with self.strategy.scope():
            self.tables = tpu_embedding.TPUEmbedding(features, optimizer=None)
            self.dense = tf.Variable(tf.ones([16]))
        self.tables.build()
        self.checkpoint = tf.train.Checkpoint(tables=self.tables, dense=self.dense)

    @tf.function
    def train(self, ids: Any) -> Any:
        def step() -> Any:
            with tf.GradientTape() as tape:
                found = self.tables.dequeue()
                tape.watch(found)
                score = tf.reduce_sum(found["adagrad"] * self.dense, axis=1)
                for name in [one for one in TABLES if one != "adagrad"]:
                    score += tf.reduce_sum(tf.sin(found[name]), axis=1)
                loss = tf.reduce_sum(tf.square(score - 1.0)) / BATCH
            of_tables, of_dense = tape.gradient(loss, [found, self.dense])
            self.tables.apply_gradients(of_tables)
            together = tf.distribute.get_replica_context().all_reduce("SUM", of_dense)
            self.dense.assign_sub(0.01 * together)
            return loss

        self.tables.enqueue(ids, training=True)
        return self.strategy.run(step)

    def ids(self, step: int) -> dict[str, Any]:
        mine = slice(self.host * self.samples, (self.host + 1) * self.samples)
        return {
            name: tf.RaggedTensor.from_tensor(tf.constant(ids_of(step, name)[mine]))
            for name in TABLES
        }

    def steps(self, first: int, end: int) -> None:
        for step in range(first, end):
            self.rate.assign(0.5 / (1 + step % 7))
            self.train(self.ids(step))

    def state(self) -> dict[str, NDArray[np.float32]]:
        found = {"dense": self.dense.numpy()}
        for name in TABLES:
            rows, slots = tpu.table(name)
            found[name] = rows.numpy()
            found |= {f"{name}/{slot}": value.numpy() for slot, value in slots.items()}
        return found

    def bytes_to_send(self, steps: range) -> int:
        """The formula of docs/explanation/scale.md."""
        overhead = 16 + 24 * len(TABLES) + 16 + 4 * len(TABLES)
        total = overhead * (self.hosts - 1) * len(steps)
        for step in steps:
            for name, (rows, width, _) in TABLES.items():
                for requester, owner, units, ids in requests(
                    step, name, rows, self.hosts
                ):
                    if self.host == requester:
                        total += ids + 4 * width * units
                    elif self.host == owner:
                        total += 4 * width * units
        return total


def requests(step: int, name: str, rows: int, hosts: int) -> list[tuple[int, ...]]:
    """Requester, owner, number of rows or partial sums, and bytes of their ids."""
    each, more = divmod(rows, hosts)
    owners = np.repeat(np.arange(hosts), [each + (h < more) for h in range(hosts)])
    width = TABLES[name][1]
    found: list[tuple[int, ...]] = []
    for requester, part in enumerate(np.split(ids_of(step, name), hosts)):
        others = [host for host in range(hosts) if host != requester]
        unpooled, pooled = [], []
        for owner in others:
            of_rows = int(np.sum(owners[np.unique(part)] == owner))
            theirs = owners[part] == owner
            of_sums = int(np.sum(theirs.any(axis=1)))
            unpooled.append((requester, owner, of_rows, 4 * of_rows))
            pooled.append(
                (requester, owner, of_sums, 4 * of_sums + 4 * int(theirs.sum()))
            )
        found += min(
            (unpooled, pooled),
            key=lambda mode: sum(ids + 8 * width * units for _, _, units, ids in mode),
        )
    return found


def whole(folder: Path, hosts: int) -> Callable[[int, Any], None]:
    """All steps; the last half again, from a checkpoint."""

    def body(host: int, resolver: Any) -> None:
        training = Training(resolver)
        training.steps(0, STEPS // 2)
        # As under any strategy of several workers: all save, each in its own place.
        training.checkpoint.write(str(folder / f"half_{hosts}_{host}"))
        before = tpu.embedding_bytes_sent()
        started = time.monotonic()
        training.steps(STEPS // 2, STEPS)
        seconds = time.monotonic() - started
        after = tpu.embedding_bytes_sent()
        np.savez(folder / f"whole_{hosts}_{host}.npz", **training.state())
        sent = sum(after[kind] - before[kind] for kind in after if kind != "messages")
        wanted = training.bytes_to_send(range(STEPS // 2, STEPS))
        print("sent", hosts, host, sent, wanted, round(seconds, 3), flush=True)

    return body


def resumed(folder: Path, hosts: int, saved_by: int) -> Callable[[int, Any], None]:
    """The last half, from a checkpoint that another number of hosts wrote."""

    def body(host: int, resolver: Any) -> None:
        training = Training(resolver)
        training.checkpoint.read(str(folder / f"half_{saved_by}_0")).assert_consumed()
        training.steps(STEPS // 2, STEPS)
        np.savez(folder / f"resumed_{hosts}_{host}.npz", **training.state())

    return body


def enduring(folder: Path, first: int) -> Callable[[int, Any], None]:
    """Steps from a checkpoint on, each tenth into another one, until all are done.

    A step that fails writes its error to a file, and ends the program.
    """

    def body(host: int, resolver: Any) -> None:
        training = Training(resolver, timeout=5.0)
        if first:
            training.checkpoint.read(str(folder / f"at_{first}")).assert_consumed()
        try:
            for step in range(first, STEPS, 10):
                training.steps(step, step + 1)
                (folder / f"begun_{host}").touch()
                training.steps(step + 1, step + 10)
                # All hosts save. The checkpoint of host 0 counts once it is complete.
                at = f"at_{step + 10}" if host == 0 else f"other_{host}"
                training.checkpoint.write(str(folder / at))
                if host == 0:
                    (folder / f"saved_{step + 10}").touch()
            np.savez(folder / f"final_{host}.npz", **training.state())
        except tf.errors.OpError as error:
            said = f"{type(error).__name__}: {error}"
            (folder / f"ended_{host}").write_text(said, "utf-8")

    return body


def summing(folder: Path) -> Callable[[int, Any], None]:
    """Sums over all hosts and nothing else, until one fails. A file has the error."""

    def body(host: int, resolver: Any) -> None:
        training = Training(resolver, timeout=5.0)
        try:
            while True:
                training.strategy.reduce("SUM", tf.ones([16]), axis=None)
                (folder / f"begun_{host}").touch()
        except tf.errors.OpError as error:
            said = f"{type(error).__name__}: {error}"
            (folder / f"ended_{host}").write_text(said, "utf-8")

    return body


def refusing(folder: Path, hosts: int) -> Callable[[int, Any], None]:
    """Six steps, and between them such as the last host of several makes fail.

    Each host writes the errors that it got, and goes on.
    """

    def body(host: int, resolver: Any) -> None:
        training = Training(resolver, timeout=30.0)
        spoils = host == hosts - 1
        told: list[str] = []

        @tf.function
        def step(ids: Any, gradient: Any, fails: Any) -> None:
            def replica() -> None:
                found = training.tables.dequeue()
                with tf.control_dependencies([tf.debugging.Assert(~fails, ["assert"])]):
                    gradients = [
                        tf.fill(tf.shape(one), gradient) for one in found.values()
                    ]
                training.tables.apply_gradients(
                    dict(zip(found, gradients, strict=True))
                )

            training.tables.enqueue(ids, training=True)
            training.strategy.run(replica)

        def refused(ids: Any, gradient: float = 1.0, fails: bool = False) -> None:
            if hosts == 1:
                return
            started = time.monotonic()
            try:
                step(ids, tf.constant(gradient), tf.constant(fails))
            except tf.errors.InvalidArgumentError as error:
                told.append(error.message)
            assert time.monotonic() - started < 20

        training.steps(0, 1)
        ids = training.ids(1)
        no_row = tf.ragged.constant([[TABLES["adam"][0]]] * training.samples, tf.int64)
        refused({**ids, "adam": no_row} if spoils else ids)
        training.steps(1, 2)
        refused(ids, gradient=np.nan if spoils else 1.0)
        training.steps(2, 3)
        refused(ids, fails=spoils)
        training.steps(3, 6)
        steps = tpu.embedding_step_count()
        np.savez(
            folder / f"refusing_{hosts}_{host}.npz", steps=steps, **training.state()
        )
        (folder / f"told_{host}.json").write_text(json.dumps(told))

    return body


def differing(folder: Path, what: str) -> Callable[[int, Any], None]:
    """A step, where the last host has another program; both tell of their error."""

    def body(host: int, resolver: Any) -> None:
        rate = 0.25 if host and what == "rate" else 0.5
        combiner = "sum" if host and what == "combiner" else "sqrtn"
        training = Training(resolver, 30.0, rate, combiner)
        try:
            training.steps(0, 1)
        except tf.errors.InvalidArgumentError as error:
            (folder / f"told_{host}").write_text(error.message, "utf-8")

    return body


def relay(ports: list[int]) -> tuple[int, list[int]]:
    """A process that passes on what comes to other ports; its id, and those ports."""
    listeners = [socket.create_server(("localhost", 0)) for _ in ports]
    found = [one.getsockname()[1] for one in listeners]
    if pid := os.fork():
        for one in listeners:
            one.close()
        return pid, found

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while got := source.recv(1 << 16):
                target.sendall(got)
            target.shutdown(socket.SHUT_WR)

    def serve(listener: socket.socket, port: int) -> None:
        while True:
            near, _ = listener.accept()
            try:
                far = socket.create_connection(("localhost", port))
            except OSError:  # It is not there yet.
                near.close()
                continue
            for pair in ((near, far), (far, near)):
                threading.Thread(target=pass_on, args=pair, daemon=True).start()

    for pair in zip(listeners, ports, strict=True):
        threading.Thread(target=serve, args=pair, daemon=True).start()
    signal.pause()
    os._exit(0)


def severed(
    folder: Path, blow: signal.Signals, hosts: int, body: Callable[[int, Any], None]
) -> None:
    """What connects the last two hosts gets a signal while all work.

    Each of the two names the other.
    """
    ports = free_ports(hosts)
    two = (hosts - 2, hosts - 1)
    link, relayed = relay([ports[host] for host in two])
    seen = [list(ports) for _ in range(hosts)]
    for host, other, port in zip(two, reversed(two), reversed(relayed), strict=True):
        seen[host][other] = port
    children = fork(hosts, body, seen)
    await_training(folder, hosts)
    os.kill(link, blow)
    struck = time.monotonic()
    codes = wait(children, 60)
    seconds = time.monotonic() - struck
    os.kill(link, signal.SIGKILL)
    os.waitpid(link, 0)
    told = {path.name: path.read_text("utf-8") for path in folder.glob("ended_*")}
    named = [
        f"/job:worker/replica:0/task:{other}" in told.get(f"ended_{host}", "")
        for host, other in zip(two, reversed(two), strict=True)
    ]
    print(
        blow.name,
        "to 2 of",
        hosts,
        codes,
        "named by",
        sum(named),
        "of",
        len(told),
        "after",
        round(seconds, 1),
        flush=True,
    )
    print(told, flush=True)


def await_training(folder: Path, hosts: int) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end and len(list(folder.glob("begun_*"))) < hosts:
        time.sleep(0.02)


def blow_to(
    children: list[int], folder: Path, blow: signal.Signals, victim: int, after: float
) -> None:
    """One host gets a signal while all train; the others end, and name it."""
    await_training(folder, len(children))
    time.sleep(after)
    os.kill(children[victim], blow)
    struck = time.monotonic()
    codes = wait([pid for pid in children if pid != children[victim]], 60)
    seconds = time.monotonic() - struck
    os.kill(children[victim], signal.SIGKILL)
    os.waitpid(children[victim], 0)
    told = [path.read_text("utf-8") for path in folder.glob("ended_*")]
    named = [f"/job:worker/replica:0/task:{victim}" in said for said in told]
    kinds = {said.partition(":")[0] for said in told}
    print(
        blow.name,
        "to",
        victim,
        "of",
        len(children),
        codes,
        "named by",
        sum(named),
        "of",
        len(told),
        *sorted(kinds),
        "after",
        round(seconds, 1),
        flush=True,
    )
    for said, does in zip(told, named, strict=True):
        if not does:
            print("not named:", said, flush=True)


def killed(folder: Path, kills: int, seed: int) -> None:
    """All steps, although hosts are killed; each time others take over."""
    rng = random.Random(seed)
    for left in range(kills, -1, -1):
        for pattern in ("begun_*", "ended_*"):
            for path in folder.glob(pattern):
                path.unlink()
        saved = [int(path.name.partition("_")[2]) for path in folder.glob("saved_*")]
        first = max(saved, default=0)
        # Kills may have come too late to stop the last steps; then it begins again.
        if left and first == STEPS:
            for path in folder.glob("saved_*"):
                path.unlink()
            first = 0
        hosts = 4 if left == kills else rng.choice([2, 4])
        children = fork(hosts, enduring(folder, first))
        if left:
            blow_to(
                children,
                folder,
                signal.SIGKILL,
                rng.randrange(hosts),
                rng.uniform(0, 2),
            )
        else:
            print("final", hosts, "from", first, wait(children, 120), flush=True)
            for ended in sorted(folder.glob("ended_*")):
                print(ended.name, ended.read_text("utf-8"), flush=True)


def equal(folder: Path) -> None:
    """The same training by 1, 2 and 4 hosts, and by others than began it."""
    for hosts in (1, 2, 4):
        print("whole", hosts, wait(fork(hosts, whole(folder, hosts)), 300), flush=True)
    for hosts, saved_by in ((1, 4), (4, 2)):
        ended = wait(fork(hosts, resumed(folder, hosts, saved_by)), 300)
        print("resumed", hosts, ended, flush=True)


def main() -> None:
    folder, what = Path(sys.argv[1]), sys.argv[2]
    if what == "equal":
        equal(folder)
    elif what == "refusing":
        for hosts in (1, 2):
            print("refusing", hosts, wait(fork(hosts, refusing(folder, hosts)), 150))
    elif what == "differing":
        children = fork(2, differing(folder, sys.argv[3]))
        print("differing", wait(children, 120), flush=True)
    elif what == "stopped":
        children = fork(3, enduring(folder, 0))
        blow_to(children, folder, signal.SIGSTOP, 1, 0.1)
    elif what == "severed":
        body = {"training": enduring(folder, 0), "summing": summing(folder)}
        severed(
            folder, signal.Signals[sys.argv[3]], int(sys.argv[4]), body[sys.argv[5]]
        )
    elif what == "killed":
        wait(fork(1, whole(folder, 1)), 120)
        killed(folder, int(sys.argv[3]), int(sys.argv[4]))


if __name__ == "__main__":
    main()
