"""Processes that train together: sums over all of them, with gradients, and what follows from the first one.

The loss of NCP is not a mean over rows: it multiplies covariances. Averaging losses or gradients of parts of a batch
therefore minimises something else. Here every process (rank) holds some rows of one joined batch, sums over rows are
completed over all ranks, and the loss is formed from complete sums, the same on every rank.

Gradients follow from one rule. Let a_r(θ) be what rank r adds to a sum A = Σ_r a_r, and L(A, θ) the loss, formed on
every rank. The derivative of ΣL over the W ranks by a_r is Σ_q ∂L_q/∂A, so the backward of a sum is a sum again; every
rank gets a gradient by its own copy of θ, and their mean over ranks is dL/dθ of one process with the joined batch,
also through sums of sums (means inside covariances).
"""

from __future__ import annotations

import atexit
import itertools
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

TIMEOUT = timedelta(minutes=10)  # of groups that are formed here; other ranks may still be reading their rows
GRACE = 2.0  # seconds in which ranks that are alive say so, once something failed

Result = TypeVar("Result")


class Ranks:
    """The ranks of a `torch.distributed` group, or one process alone.

    If each has rows of its `own`, these may follow another law than those of others, and no part of a batch may be that
    of some ranks only.

    Examples
    --------
    >>> ALONE.size, ALONE.total(torch.ones(2))
    (1, [tensor([1., 1.])])
    """

    def __init__(self, group: Any = None, own: bool = False) -> None:
        self.group, self.own = group, own
        self.rank = 0 if group is None else group.rank()
        self.size = 1 if group is None else group.size()

    def rows(self, here: int) -> JoinedRows:
        """A batch of which `here` rows are held here; ranks tell each other how many they hold."""
        if self.size == 1:
            return JoinedRows(self, (here,))
        counts = torch.zeros(self.size, dtype=torch.int64, device=self.device)
        counts[self.rank] = here
        self._reduce(counts)
        return JoinedRows(self, tuple(counts.tolist()))

    def total(self, *tensors: Tensor) -> list[Tensor]:
        """Each tensor summed over all ranks, with gradients; all of them in one message."""
        if self.size == 1:
            return list(tensors)
        flat = _SumOverRanks.apply(torch.cat([tensor.reshape(-1) for tensor in tensors]), self)
        parts = flat.split([tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def average_gradients(self, parameters: Iterable[Tensor]) -> None:
        """The mean over ranks of every gradient, in one message; a parameter without one on all ranks keeps none."""
        if self.size == 1:
            return
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        present = trained[0].new_tensor([p.grad is not None for p in trained])
        flat = torch.cat([present, *(gradient.reshape(-1) for gradient in gradients)])
        self._reduce(flat)
        counts, flat = flat[: len(trained)].tolist(), flat[len(trained) :] / self.size
        parts = flat.split([parameter.numel() for parameter in trained])
        for parameter, count, part in zip(trained, counts, parts, strict=True):
            parameter.grad = part.view(parameter.shape).clone() if count > 0 else None

    def agree(self, tensors: Iterable[Tensor]) -> None:
        """Take the values of the first rank, in place."""
        if self.size > 1:
            for tensor in tensors:
                on_device = tensor.detach().to(self.device).contiguous()
                self._guarded(partial(dist.broadcast, on_device, self._first, group=self.group))
                tensor.detach().copy_(on_device)

    def gathered(self, value: Result) -> list[Result]:
        """One value of every rank, in their order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        self._guarded(lambda: dist.all_gather_object(values, value, group=self.group))
        return values

    def from_first(self, compute: Callable[[], Result]) -> Result:
        """What the first rank computes; what it raises is raised on all ranks."""
        if self.size == 1:
            return compute()
        answer: list[Any] = [None]
        if self.rank == 0:
            try:
                answer = [(compute(), None)]
            except Exception as error:
                answer = [(None, error)]
        self._guarded(lambda: dist.broadcast_object_list(answer, self._first, group=self.group))
        result, failure = answer[0]
        if failure is not None:
            raise failure
        return result

    @property
    def device(self) -> torch.device:
        """Where the messages of the group live."""
        backend = "gloo" if self.group is None else dist.get_backend(self.group)
        return torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")

    @property
    def _first(self) -> int:
        return dist.get_global_rank(self.group, 0)

    def _reduce(self, tensor: Tensor) -> None:
        """Sum over ranks in place."""
        self._guarded(lambda: dist.all_reduce(tensor, group=self.group))

    def _guarded(self, message: Callable[[], Any]) -> None:
        try:
            message()
        except RuntimeError as error:  # also those of gloo and NCCL
            raise RuntimeError(
                f"Rank {self.rank} of {self.size} cannot go on: {self._silent_ranks()} ({_first_line(error)}). "
                "Start all ranks again; with `checkpoint_dir` training goes on from the last checkpoint."
            ) from error

    def _silent_ranks(self) -> str:
        """Which ranks do not answer, as far as the store of the group still tells."""
        try:
            store = dist.distributed_c10d._get_default_store()
            store.set(f"ncprob/alive/{dist.get_rank()}", "yes")
            names = [dist.get_global_rank(self.group, r) for r in range(self.size)]
            time.sleep(GRACE)
            silent = [rank for rank in names if not store.check([f"ncprob/alive/{rank}"])]
            if dist.get_rank() == 0:  # it may keep the store, which others still have to ask
                time.sleep(GRACE)
        except Exception:  # the process that keeps the store is the one that is gone
            return "rank 0 or the network does not answer"
        if not silent:
            return "a message between ranks failed"
        return f"rank{'s' * (len(silent) > 1)} {', '.join(map(str, silent))} stopped or cannot be reached"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


class _SumOverRanks(torch.autograd.Function):
    """Σ over ranks; the backward of a sum whose result every rank uses is the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        result = tensor.detach().clone()
        ranks._reduce(result)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        result = gradients[0].contiguous().clone()
        ctx.ranks._reduce(result)
        return result, None


ALONE = Ranks()


@dataclass(frozen=True)
class JoinedRows:
    """Rows of a batch in the order of ranks, of which this rank holds `counts[rank]`.

    Examples
    --------
    >>> (first, rows), (second, _) = JoinedRows.alone(5).halves()  # an odd last row is left out
    >>> len(rows), first, second
    (2, slice(0, 2, None), slice(2, 4, None))
    """

    ranks: Ranks
    counts: tuple[int, ...]

    @classmethod
    def alone(cls, n: int) -> JoinedRows:
        """All rows are here."""
        return cls(ALONE, (n,))

    def __len__(self) -> int:
        """Rows of all ranks."""
        return sum(self.counts)

    def total(self, *tensors: Tensor) -> list[Tensor]:
        """Sums over all ranks; see `Ranks.total`."""
        return self.ranks.total(*tensors)

    def part(self, begin: int, end: int) -> tuple[slice, JoinedRows]:
        """Rows `begin` to `end` of the joined batch: which of those held here, and all of them."""
        cuts, offset = [], 0
        for count in self.counts:
            cuts.append([min(max(position - offset, 0), count) for position in (begin, end)])
            offset += count
        return slice(*cuts[self.ranks.rank]), JoinedRows(self.ranks, tuple(high - low for low, high in cuts))

    def halves(self) -> tuple[tuple[slice, JoinedRows], tuple[slice, JoinedRows]]:
        """Two disjoint halves of equal size; an odd last row is in neither. Ranks with `own` rows give to both."""
        m = len(self) // 2
        if self.ranks.own:
            ends = [0, *(end // 2 for end in itertools.accumulate(self.counts))]
            first = [high - low for low, high in itertools.pairwise(ends)]
            second = [count - taken for count, taken in zip(self.counts, first, strict=True)]
            if sum(second) > m:
                second[max(range(len(second)), key=second.__getitem__)] -= 1
            here = first[self.ranks.rank]
            return (
                (slice(0, here), JoinedRows(self.ranks, tuple(first))),
                (slice(here, here + second[self.ranks.rank]), JoinedRows(self.ranks, tuple(second))),
            )
        return self.part(0, m), self.part(m, 2 * m)

    def joined(self, *features: Tensor) -> list[Tensor]:
        """Rows of all ranks, with gradients, `own` rows mixed: the rows themselves travel, unlike with `total`."""
        if self.ranks.size == 1:
            return list(features)
        before, after = sum(self.counts[: self.ranks.rank]), sum(self.counts[self.ranks.rank + 1 :])
        rows = self.total(*(torch.nn.functional.pad(rows, (0, 0, before, after)) for rows in features))
        if not self.ranks.own:
            return rows
        mixed = torch.randperm(len(self), generator=torch.Generator().manual_seed(len(self)))  # partners of any rank
        return [each[mixed.to(each.device)] for each in rows]


def shares(total: int, masses: Sequence[float]) -> list[int]:
    """`total` divided into whole parts in proportion to masses, by largest remainders.

    Examples
    --------
    >>> shares(10, [1, 1, 1]), shares(7, [3.0, 1.0])
    ([4, 3, 3], [5, 2])
    """
    exact = [total * mass / sum(masses) for mass in masses]
    parts = [int(share) for share in exact]
    order = sorted(range(len(parts)), key=lambda r: (parts[r] - exact[r], r))
    for r in order[: total - sum(parts)]:
        parts[r] += 1
    return parts


def current_ranks(device: torch.device) -> Ranks:
    """The ranks of this job: those of the default group, which is formed if `torchrun` started this process.

    Examples
    --------
    >>> current_ranks(torch.device("cpu")).size  # not under torchrun
    1
    """
    if not dist.is_available():
        return ALONE
    if not dist.is_initialized() and _launched():
        _form_group(device)
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return ALONE
    return Ranks(dist.group.WORLD)


def _launched() -> bool:
    """Whether `torchrun`, or something that sets the same variables, started several processes."""
    needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if not all(name in os.environ for name in needed):
        return False
    size = _number("WORLD_SIZE", "from 1 on", minimum=1)
    if size == 1:
        return False
    _number("RANK", f"from 0 to {size - 1} with WORLD_SIZE {size}", maximum=size - 1)
    _number("MASTER_PORT", "from 1 to 65535", minimum=1, maximum=65535)
    return True


def _number(name: str, allowed: str, minimum: int = 0, maximum: float = math.inf) -> int:
    """A variable of the environment as a whole number."""
    text = os.environ[name]
    number = int(text) if text.strip().isdecimal() else -1
    if not minimum <= number <= maximum:
        raise ValueError(
            f"The variable {name} of the environment must be a whole number {allowed}; got {text!r}. Start ranks with "
            "`torchrun`, which sets it, or unset it for a process alone."
        )
    return number


def _form_group(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    try:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    except RuntimeError as error:
        raise RuntimeError(
            f"Rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} found no group at {os.environ['MASTER_ADDR']}:"
            f"{os.environ['MASTER_PORT']} within {TIMEOUT.seconds} s ({_first_line(error)}). "
            "Check that all ranks were started and that this address can be reached from their machines."
        ) from error
    atexit.register(_leave)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
