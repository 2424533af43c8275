"""Calls of the CudnnRNN ops, and of the one that runs layers of Keras."""

from __future__ import annotations

from .calls import Call, Literal, Made, Scenario, Value
from .damage import Draw, damage

DTYPES = ("float32", "float32", "float64", "half", "bfloat16")
GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}


def array(rng: Draw, dtype: str, *shape: int) -> Literal:
    scale = rng.pick(0.0, 1.0, 1.0, 1e30)
    return Literal(dtype, list(shape), normal=rng.seed32(), scale=scale)


def layers(rng: Draw) -> Scenario:
    """A layer forward and backward, each perhaps damaged."""
    dtype, mode = rng.pick(*DTYPES), rng.pick(*GATES)
    version = rng.pick(1, 2, 3, 3, 3)
    depth, units, inputs, time, batch = (rng.int(1, 5) for _ in range(5))
    dirs = rng.pick(1, 2)
    proj = rng.pick(0, units) if mode == "lstm" and version == 3 else 0
    hidden = proj or units
    gates, size = GATES[mode], 0
    for layer in range(depth):
        width = dirs * hidden if layer else inputs
        size += dirs * (gates * units * (width + hidden + 2) + proj * units)
    major = version < 3 or rng.chance(0.5)
    first = [time, batch] if major else [batch, time]
    states = [depth * dirs, batch] if major else [batch, depth * dirs]
    attrs = {
        "rnn_mode": mode.encode(),
        "input_mode": b"linear_input",
        "direction": (b"unidirectional", b"bidirectional")[dirs - 1],
        "dropout": rng.pick(0.0, 0.5),
        "seed": 0,
        "seed2": 0,
    }
    arguments: dict[str, Value] = {
        "input": array(rng, dtype, *first, inputs),
        "input_h": array(rng, dtype, *states, hidden),
        "input_c": array(rng, dtype, *states, units),
        "params": array(rng, dtype, size),
    }
    suffix = "" if version == 1 else f"V{version}"
    if version == 3:
        lengths = [rng.int(0, time) for _ in range(batch)]
        arguments["sequence_lengths"] = Literal("int32", [batch], lengths)
        attrs |= {"num_proj": proj, "time_major": major}
    training = {**attrs, "is_training": rng.chance(0.9)}
    forward = Call(f"CudnnRNN{suffix}", dict(arguments), training)
    calls = []
    if rng.chance(0.4):
        return Scenario("rnn", [damage(rng, forward)])
    forward.attrs["is_training"] = True
    calls.append(forward)
    for k in range(rng.pick(1, 2)):
        more: dict[str, Value] = dict(arguments)
        for i, name in enumerate(("output", "output_h", "output_c")):
            more[name] = Made(0, i)
        for i, name in enumerate(("output", "output_h", "output_c")):
            more[f"{name}_backprop"] = Made(0, i)
        more["reserve_space"] = Made(0, 3)
        if version > 1:
            more["host_reserved"] = Made(0, 4)
        back = Call(f"CudnnRNNBackprop{suffix}", more, dict(attrs))
        calls.append(damage(rng, back) if k or rng.chance(0.7) else back)
    return Scenario("rnn", calls)


def keras(rng: Draw) -> Scenario:
    """A layer of Keras, called again with other numbers, or damaged, or both.

    One node's kernel keeps the weights that it packed.
    """
    dtype, mode = rng.pick(*DTYPES), rng.pick(*GATES)
    units, size, steps, batch = (rng.int(1, 5) for _ in range(4))
    rows = GATES[mode] * units
    state = [batch, units] if mode == "lstm" else rng.pick([], [batch, units])
    lengths = [rng.int(0, steps) for _ in range(batch)]
    arguments: dict[str, Value | list[Value]] = {
        "input": array(rng, dtype, batch, steps, size),
        "input_h": array(rng, dtype, batch, units),
        "input_c": array(rng, dtype, *state),
        "kernel": array(rng, dtype, size, rows),
        "recurrent_kernel": array(rng, dtype, units, rows),
        "bias": array(rng, dtype, rng.int(0, 2), rows),
        "sequence_lengths": Literal("int32", [batch], lengths),
    }
    calls = []
    for _ in range(rng.int(1, 4)):
        call = Call("OpwrightKerasRNN", dict(arguments), {"rnn_mode": mode.encode()})
        calls.append(damage(rng, call) if rng.chance(0.6) else call)
        changed = rng.pick("input", "input_h", "kernel", "recurrent_kernel", "bias")
        old = arguments[changed]
        assert isinstance(old, Literal)
        arguments[changed] = array(rng, dtype, *old.shape)
    return Scenario("keras", calls)


def params(rng: Draw) -> Scenario:
    """Sizes that fit or do not, and that overflow."""
    dtype, mode = rng.pick(*DTYPES), rng.pick(*GATES)
    depth, units, inputs = (rng.int(1, 3) for _ in range(3))
    dirs, gates = rng.pick(1, 2), GATES[mode]
    proj = rng.pick(0, 1) if mode == "lstm" else 0
    version = rng.pick("", "V2")
    kind = rng.pick("Size", "CanonicalTo", "ToCanonical", "ToCanonical")
    sizes: dict[str, Value | list[Value]] = {
        name: Literal("int32", [], [value])
        for name, value in (
            ("num_layers", depth),
            ("num_units", units),
            ("input_size", inputs),
        )
    }
    attrs = {
        "rnn_mode": mode.encode(),
        "input_mode": b"linear_input",
        "direction": (b"unidirectional", b"bidirectional")[dirs - 1],
        "dropout": 0.0,
        "seed": 0,
        "seed2": 0,
    }
    if kind == "Size":
        attrs |= {"T": dtype, "S": rng.pick("int32", "int64"), "num_proj": proj}
        call = Call("CudnnRNNParamsSize", sizes, attrs)
        return Scenario("rnn params", [damage(rng, call) if rng.chance(0.8) else call])
    if version:
        attrs["num_proj"] = proj
    else:
        proj = 0
    hidden = proj or units
    weights: list[list[int]] = []
    for layer in range(depth):
        width = dirs * hidden if layer else inputs
        one = [[units, width]] * gates + [[units, hidden]] * gates
        weights += (one + [[proj, units]] * bool(proj)) * dirs
    biases = [[units]] * (depth * dirs * 2 * gates)
    if kind == "CanonicalTo":
        sizes["weights"] = [array(rng, dtype, *shape) for shape in weights]
        sizes["biases"] = [array(rng, dtype, *shape) for shape in biases]
        call = Call(f"CudnnRNNCanonicalToParams{version}", sizes, attrs)
    else:
        size = sum(a * b for a, b in weights) + sum(a for (a,) in biases)
        sizes["params"] = array(rng, dtype, size)
        if version:
            attrs |= {
                "num_params_weights": len(weights),
                "num_params_biases": len(biases),
            }
        else:
            attrs["num_params"] = len(biases)
        call = Call(f"CudnnRNNParamsToCanonical{version}", sizes, attrs)
    return Scenario("rnn params", [damage(rng, call) if rng.chance(0.8) else call])


def kept(rng: Draw) -> Scenario:
    """A large layer in inference, many times, with attrs that change nothing."""
    units = 384
    size = 4 * units * (units * 2 + 2)
    arguments: dict[str, Value | list[Value]] = {
        "input": Literal("float32", [4, 8, units], fill=0.5),
        "input_h": Literal("float32", [1, 8, units], fill=0.0),
        "input_c": Literal("float32", [1, 8, units], fill=0.0),
        "params": Literal("float32", [size], normal=rng.seed32()),
    }
    attrs = {
        "rnn_mode": b"lstm",
        "input_mode": b"linear_input",
        "direction": b"unidirectional",
        "dropout": 0.0,
        "seed": 0,
        "is_training": False,
    }
    calls = [Call("CudnnRNN", arguments, {**attrs, "seed2": i}) for i in range(60)]
    return Scenario("rnn kept", calls)
