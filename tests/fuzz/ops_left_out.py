"""Ops that the fuzzer of all ops leaves out, and why."""

from __future__ import annotations

import re

LEFT_OUT = {
    "ends the process, as it is meant to": ("Abort",),
    "waits for another caller": (
        r"Barrier\w*",
        r"\w*Queue(Dequeue|Enqueue)\w*",
        r"(Ordered)?Map(Peek|Stage|Unstage|UnstageNoKey)",
        "Stage|StagePeek|Unstage",
        r"ReaderRead\w*",
        r"\w*Accumulator(Take|TakeGradient)",
        "Batch|BatchFunction|Unbatch|UnbatchGrad",
        "MutexLock|ConsumeMutexLock",
        "Send|Recv|_HostSend|_HostRecv|_Send|_Recv",
        r"Collective\w*|Nccl\w*",
    ),
    "runs for as long as its arguments say": ("For|While|StatelessWhile|RiscWhile",),
    "needs a network": (
        r"Rpc\w*|DeleteRpcFutureResource",
        r"\w*DataService\w*|RegisterDataset\w*",
    ),
    "needs a TPU, or a compiler": (
        r"\w*TPU\w*",
        r"Xla(?!SplitND|ConcatND)\w*",
    ),
    "prints": ("Print|PrintV2",),
    "looks into a program that is debugged": (r"Debug\w*",),
}
NATIVE = "has a kernel of this library, which `make fuzz` calls"


def why_left_out(name: str) -> str | None:
    """Why an op is left out; None if it is not."""
    for reason, patterns in LEFT_OUT.items():
        if any(re.fullmatch(pattern, name) for pattern in patterns):
            return reason
    return None
