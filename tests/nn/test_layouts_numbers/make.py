"""Make the numbers that Keras and Flax give for small attention layers, which the tests are held to.

The tests depend on neither: its weights and outputs for one input are all that is asked of a framework. Where
both are installed (`pip install keras flax`), run this as
`KERAS_BACKEND=jax python tests/nn/test_layouts_numbers/make.py`; with `--check` it writes nothing, but says
whether the frameworks installed still give the numbers that are stored.
"""

import sys
from pathlib import Path

import flax
import jax
import keras
import numpy as np
from flax import linen, nnx
from flax.traverse_util import flatten_dict

HERE = Path(__file__).parent
BATCH, SEQ_LEN, KV_LEN, D_MODEL, KEY_DIM, VALUE_DIM = 2, 5, 7, 12, 10, 11
Arrays = dict[str, np.ndarray]


def drawn(numbers: np.random.Generator, *shape: int) -> np.ndarray:
    return numbers.standard_normal(shape).astype(np.float32)


def keras_layer(layer: keras.layers.Layer, seed: int, *, cross: bool, causal: bool) -> Arrays:
    numbers = np.random.default_rng(seed)
    query = drawn(numbers, BATCH, SEQ_LEN, D_MODEL)
    key = drawn(numbers, BATCH, KV_LEN, KEY_DIM) if cross else query
    value = drawn(numbers, BATCH, KV_LEN, VALUE_DIM) if cross else query
    layer.build(query.shape, value.shape, key.shape)
    layer.set_weights([drawn(numbers, *weight.shape) for weight in layer.weights])
    # With the scores asked for Keras 3.15 takes the path that allows a value_dim of its own.
    output, _ = layer(query, value, key, use_causal_mask=causal, return_attention_scores=True)
    weights = {variable.path.split("/", 1)[1]: np.asarray(variable.value) for variable in layer.weights}
    return {
        **weights,
        "inputs/query": query,
        "inputs/key": key,
        "inputs/value": value,
        "output": np.asarray(output),
    }


def linen_layer() -> Arrays:
    numbers = np.random.default_rng(3)
    inputs = [
        drawn(numbers, BATCH, length, width) for length, width in ((SEQ_LEN, D_MODEL), (KV_LEN, KEY_DIM))
    ]
    layer = linen.MultiHeadDotProductAttention(num_heads=3, qkv_features=15, out_features=8)
    shapes = flatten_dict(layer.init(jax.random.key(0), inputs[0], inputs[1], inputs[1])["params"], sep="/")
    weights = {name: drawn(numbers, *array.shape) for name, array in shapes.items()}
    nested = flax.traverse_util.unflatten_dict(weights, sep="/")
    output = layer.apply({"params": nested}, inputs[0], inputs[1], inputs[1])
    named = dict(
        zip(("inputs/query", "inputs/key", "inputs/value"), (inputs[0], inputs[1], inputs[1]), strict=True)
    )
    return {**weights, **named, "output": np.asarray(output)}


def nnx_layer() -> Arrays:
    numbers = np.random.default_rng(4)
    given = drawn(numbers, BATCH, SEQ_LEN, D_MODEL)
    layer = nnx.MultiHeadAttention(6, D_MODEL, 24, num_kv_heads=2, decode=False, rngs=nnx.Rngs(0))
    shapes = flatten_dict(nnx.to_pure_dict(nnx.state(layer, nnx.Param)), sep="/")
    weights = {name: drawn(numbers, *array.shape) for name, array in shapes.items()}
    nnx.update(layer, nnx.State(flax.traverse_util.unflatten_dict(weights, sep="/")))
    output = layer(given, mask=np.tril(np.ones((1, 1, SEQ_LEN, SEQ_LEN), dtype=bool)))
    inputs = dict.fromkeys(("inputs/query", "inputs/key", "inputs/value"), given)
    return {**weights, **inputs, "output": np.asarray(output)}


def made() -> dict[str, Arrays]:
    jax.config.update("jax_default_matmul_precision", "highest")
    return {
        "keras_cross": keras_layer(
            keras.layers.MultiHeadAttention(3, 4, value_dim=5, output_shape=(8,), name="a"),
            1,
            cross=True,
            causal=False,
        ),
        "keras_grouped": keras_layer(
            keras.layers.GroupQueryAttention(4, 6, 2, name="b"), 2, cross=False, causal=True
        ),
        "flax_linen": linen_layer(),
        "flax_nnx_grouped": nnx_layer(),
    }


def check() -> int:
    """Say what differs from the files; return 1 if anything does."""
    differing = 0
    for name, arrays in made().items():
        with np.load(HERE / f"{name}.npz") as stored:
            before = dict(stored)
        if before.keys() != arrays.keys():
            print(f"{name}: other parameters, {sorted(before.keys() ^ arrays.keys())}")  # noqa: T201  # a script says what it finds
            differing += 1
            continue
        error = max(float(np.abs(arrays[key] - before[key]).max()) for key in before)
        print(f"{name}: largest difference {error:.1e}")  # noqa: T201  # a script says what it finds
        differing += error > 1e-5
    return int(differing > 0)


def write() -> None:
    for name, arrays in made().items():
        np.savez_compressed(HERE / f"{name}.npz", **arrays)
    (HERE / "versions.txt").write_text(
        f"keras {keras.__version__}\nflax {flax.__version__}\njax {jax.__version__}\n"
    )


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(check())
    write()
