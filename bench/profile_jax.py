#!/usr/bin/env python3
"""A small JAX training loop for the profiler to look at."""
import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def step(w, x, y):
    def loss(w):
        return jnp.mean((jnp.tanh(x @ w) - y) ** 2)
    return w - 0.1 * jax.grad(loss)(w)


def main():
    rng = np.random.default_rng(1)
    w = jnp.asarray(rng.standard_normal((784, 256), np.float32))
    for _ in range(100):
        x, y = rng.random((1024, 784), np.float32), rng.random((1024, 256), np.float32)
        w = step(w, jax.device_put(x), jax.device_put(y))
    print(float(w.sum()))


if __name__ == "__main__":
    main()
