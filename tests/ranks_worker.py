"""One rank of `test_ranks.py`: computes its part of every scenario and writes what it found to a file."""

import faulthandler
import json
import math
import os
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from helpers import gaussian_pairs, normal, small_operator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ncprob import train
from ncprob.losses import LOSSES, orthonormality_penalty
from ncprob.partition import part_of
from ncprob.ranks import Ranks

UNEVEN = {2: (5, 8), 3: (4, 1, 12)}  # rows of every rank; the boundary of the halves lies inside a rank
QUICK = {
    "max_steps": 16, "batch_size": 50, "validate_every": 4, "patience": 2, "learning_rate": 1e-2, "device": "cpu",
    "progress": False,
}  # fmt: skip
KILLED_AT = 10  # after the checkpoint of step 8


def double_operator(seed=1):
    return small_operator(seed=seed, width=6).double()


def training_pairs(weighted):
    x, y = gaussian_pairs(203, dtype=torch.float64)
    return (x, y, 0.1 + normal(203, seed=9).abs()) if weighted else (x, y)


def held_out_pairs():
    return gaussian_pairs(101, seed=1, dtype=torch.float64)


def part(pairs, rank, sizes):
    """Rows of one rank."""
    begin = sum(sizes[:rank])
    return tuple(tensor[begin : begin + sizes[rank]] for tensor in pairs)


def loss_and_gradient(name, pairs, ranks=None):
    """Loss of a batch and its gradient by all parameters."""
    operator = double_operator()
    u, v = operator.encode(*pairs)
    rows = None if ranks is None else ranks.rows(len(u))
    if name == "penalty":
        value = orthonormality_penalty(u, v, rows)
    else:
        value = LOSSES[name](u, v, operator.singular_values, rows)
    value.backward()
    if ranks is not None:
        ranks.average_gradients(operator.parameters())
    gradient = [p.grad.flatten() for p in operator.parameters() if p.grad is not None]
    return value.item(), torch.cat(gradient).tolist()


def flat(operator):
    return torch.cat([tensor.detach().double().flatten() for tensor in operator.state_dict().values()]).tolist()


def trained(loss, weighted=False, checkpoint=None, encoder=None, operator=None, **settings):
    """A trained operator's state, its history, and its whitened form."""
    operator = double_operator() if operator is None else operator
    if encoder is not None:
        operator.x_encoder = encoder(operator.x_encoder)
    pairs = training_pairs(weighted)
    history = train(
        operator, pairs, loss=loss, validation_pairs=held_out_pairs(), checkpoint_dir=checkpoint, **QUICK | settings
    )  # fmt: skip
    weights = flat(operator)
    hold = "same" if dist.is_initialized() else "alone"
    values = operator.postprocess(pairs, ranks=hold).singular_values.tolist()
    return {
        "weights": weights, "loss": history.loss, "validation": history.validation_loss, "steps": history.n_steps,
        "best": history.best_step, "values": values,
    }  # fmt: skip


class Killing(nn.Module):
    """An encoder that kills its process the n-th time it is trained."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.calls = encoder, 0

    def forward(self, x):
        self.calls += self.training
        if self.training and self.calls == KILLED_AT and os.environ.get("RANK") == "2":
            os.kill(os.getpid(), signal.SIGKILL)
        return self.encoder(x)


class Full(nn.Module):
    """An encoder for which the device of rank 1 has no memory the third time it is trained."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.calls = encoder, 0

    def forward(self, x):
        self.calls += self.training
        if self.training and self.calls == 3 and os.environ["RANK"] == "1":
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return self.encoder(x)


def message_of(call):
    try:
        call()
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing raised"


def own_rows(rank):
    """Uneven rows of three ranks, the second with weights."""
    x, y = gaussian_pairs(120, dtype=torch.float64)
    x, y = part((x, y), rank, (70, 20, 30))
    return (x, y, torch.full((20,), 2.0)) if rank == 1 else (x, y)


def main(folder):
    rank, found = int(os.environ["RANK"]), {}
    store = f"file://{folder}/store"  # a port that is free now may be taken by the time the ranks ask for it
    dist.init_process_group("gloo", store, timedelta(seconds=60), world_size=3, rank=rank)
    pair = dist.new_group([0, 1])
    for size, group in ((2, pair), (3, dist.group.WORLD)):
        if rank < size:
            sizes = UNEVEN[size]
            joined = gaussian_pairs(sum(sizes), dtype=torch.float64)
            for name in (*LOSSES, "penalty"):
                found[f"{name}-{size}"] = loss_and_gradient(name, part(joined, rank, sizes), Ranks(group))
    # Ranks begin with other weights: those of the first count.
    found["train"] = trained("covariance", operator=double_operator(seed=1 + rank))
    found["train-weighted"] = trained("u_statistic", weighted=True)
    found["train-cross"] = trained("cross_fitted", max_steps=8)
    operator = double_operator()
    mine = own_rows(rank)
    train(operator, mine, ranks="own", **QUICK)
    found["own"] = flat(operator)
    found["own-values"] = operator.postprocess(mine, ranks="own").singular_values.tolist()
    cpu = torch.device("cpu")

    def holding(pairs, hold, **settings):
        from ncprob.pairs import as_pairs

        return message_of(lambda: part_of(as_pairs(pairs), hold, cpu, **settings))

    few, equal = gaussian_pairs(2), gaussian_pairs(20)
    uneven = DataLoader(TensorDataset(*gaussian_pairs(20 + 20 * rank)), batch_size=4)
    none = DataLoader(TensorDataset(*gaussian_pairs(20, seed=rank)), batch_size=10 + 20 * (rank == 1), drop_last=True)
    held = equal if rank < 2 else None
    found["errors"] = {
        "few rows": holding(few, "same"),
        "small batch": holding(equal, "same", batch_size=2),
        "differ": holding(gaussian_pairs(20, seed=rank // 2), "same"),
        "equal": holding(equal, "own"),
        "empty": holding(part(equal, rank, (10, 0, 10)), "own"),
        "loader": holding(DataLoader(TensorDataset(*equal)), "same"),
        "uneven loaders": holding(uneven, "own"),
        "no batch": holding(none, "own"),
        "seed": message_of(lambda: trained("covariance", random_state=rank // 2)),
        "validation": message_of(lambda: train(double_operator(), equal, validation_pairs=held, **QUICK)),
        "bad checkpoint": message_of(lambda: trained("covariance", checkpoint=f"{folder}/bad")),
    }
    broken = tuple(tensor * (math.nan if rank == 1 else 1) for tensor in mine[:2])
    found["nan"] = message_of(lambda: train(double_operator(), broken, ranks="own", **QUICK))
    found["killed"] = message_of(lambda: trained("covariance", checkpoint=f"{folder}/run", encoder=Killing))
    dist.destroy_process_group()  # two of three are left
    dist.init_process_group("gloo", f"{store}-of-two", timedelta(seconds=60), world_size=2, rank=rank)
    found["memory"] = message_of(lambda: trained("covariance", encoder=Full))
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(found, file)
    os._exit(0)  # as after an error that nobody catches: without a word to the other rank


if __name__ == "__main__":
    faulthandler.dump_traceback_later(100, exit=True)  # says where a rank waits, should one ever wait for ever
    torch.set_num_threads(1)
    main(sys.argv[1])
