"""Training on several processes, and what it costs: `torchrun --standalone --nproc-per-node 2 -m benchmarks.ranks`.

A Gaussian pair with correlation 0.8 has singular values 0.8, 0.64, 0.512, …; any number of processes finds the same.
Without torchrun it trains in this process.
"""

import argparse
import os
import time

import torch

import ncprob
from ncprob.encoders import MLP

RHO = 0.8


def pairs(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, noise = torch.randn(2, n, 1, generator=torch.Generator().manual_seed(seed))
    return x, RHO * x + (1 - RHO**2) ** 0.5 * noise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--rank", type=int, default=16, help="number of singular functions")
    parser.add_argument("--loss", default="covariance")
    parser.add_argument("--checkpoint", help="directory for checkpoints; the same command goes on from them")
    options = parser.parse_args()
    torch.manual_seed(0)
    operator = ncprob.SpectralOperator(MLP(1, (64, 64), options.rank), MLP(1, (64, 64), options.rank), options.rank)
    training, held_out = pairs(options.rows, 0), pairs(4000, 1)  # the same on every rank: each computes its part
    start = time.perf_counter()
    history = ncprob.train(
        operator, training, validation_pairs=held_out, loss=options.loss, max_steps=options.steps,
        batch_size=options.batch_size, learning_rate=5e-3, early_stopping=False, checkpoint_dir=options.checkpoint,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    operator.postprocess(training, ranks="same")
    if os.environ.get("RANK", "0") == "0":
        values = ", ".join(f"{value:.3f}" for value in operator.singular_values[:3].tolist())
        print(f"{os.environ.get('WORLD_SIZE', '1')} process(es): singular values {values} (exact 0.800, 0.640, 0.512)")
        print(f"{history.n_steps} steps, {1000 * seconds / history.n_steps:.2f} ms each, loss {history.loss[-1]:.6f}")


if __name__ == "__main__":
    main()
