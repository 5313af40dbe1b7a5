"""Training of an operator on a Ray cluster: the processes of `ncprob.train`, started and watched by Ray Train."""

from __future__ import annotations

import inspect
import os
import tempfile
import warnings
from typing import Any

from safetensors.torch import load as load_tensors
from safetensors.torch import save as tensor_bytes

from ncprob._validation import check_choice, check_integer
from ncprob.operator import POSTPROCESSINGS, PostProcessing, SpectralOperator
from ncprob.optimization import History
from ncprob.ranks import TIMEOUT
from ncprob.training import train
from ncprob.workers import connected_ray

__all__ = ["train_on_ray"]

HOLD = ("same", "own")


def train_on_ray(
    operator: SpectralOperator,
    pairs: Any,
    *,
    workers: int = 2,
    gpu: bool = False,
    postprocessing: PostProcessing = "none",
    restarts: int = 0,
    storage_path: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> History:
    """Train an operator in place by `workers` processes of a Ray cluster and return the history.

    Ray Train starts the processes and joins them in a `torch.distributed` group, in which `ncprob.train` runs as it
    does under `torchrun`: losses and gradients are those of one process with the joined batch, and the result is that
    of `torchrun` with as many ranks.

    Parameters
    ----------
    operator : SpectralOperator
        Trained in place; a copy travels to the workers and its weights come back.
    pairs : (x, y), (x, y, weights), TimeLaggedPairs, Dataset, or callable
        As for `ncprob.train`. A callable `pairs(rank, size)` is called on every worker and gives its pairs, so that
        they need not travel; `ranks="own"` needs one, for example to read the worker's files. `validation_pairs`
        likewise.
    workers : int
        Processes, one CPU each.
    gpu : bool
        Whether each gets a GPU too; messages then go by NCCL.
    postprocessing : {"none", "centering", "whitening"}
        `operator.postprocess` with the pairs of all workers, before these go.
    restarts : int
        How often Ray may start all workers again after one has died; with `checkpoint_dir`, in a directory that all
        machines see, they go on from the last checkpoint, else they begin anew.
    storage_path : path, optional
        Where Ray Train keeps its own records; by default in a temporary directory.
    **settings
        What `ncprob.train` takes: `loss`, `gamma`, `max_steps`, `validation_pairs`, `checkpoint_dir`, `ranks`, …

    Raises
    ------
    ValueError, TypeError
        What `ncprob.train` refuses, on any of the workers.
    RuntimeError
        If a worker has died or failed; it is named by its rank.

    Notes
    -----
    Uses the cluster that `ray.init` was called for or that `RAY_ADDRESS` names, else one of its own on this machine.
    Needs the extra `distributed`.

    Examples
    --------
    >>> import torch
    >>> from ncprob.encoders import MLP
    >>> operator = SpectralOperator(MLP(1, (16,), 4), MLP(1, (16,), 4), rank=4)
    >>> x = torch.linspace(-1, 1, 200)[:, None]
    >>> history = train_on_ray(operator, (x, x**2), workers=2, max_steps=20)  # doctest: +SKIP
    """
    check_integer(workers, "workers", minimum=1)
    check_integer(restarts, "restarts", minimum=0)
    check_choice(postprocessing, "postprocessing", POSTPROCESSINGS)
    hold = check_choice(settings.get("ranks", "same"), "ranks", HOLD)
    if not isinstance(operator, SpectralOperator):
        raise TypeError(f"`operator` must be a SpectralOperator; got {type(operator).__name__}. Pass one.")
    if hold == "own" and not callable(pairs):
        raise TypeError(
            f"`pairs` must be a callable for ranks='own'; got {type(pairs).__name__}, the same on all workers. Pass "
            "`pairs(rank, size)` that gives those of a worker, or ranks='same'."
        )
    inspect.signature(train).bind(operator, pairs, **settings)  # misspelt settings, before anything is started
    if settings.get("checkpoint_dir") is not None:
        settings["checkpoint_dir"] = os.path.abspath(settings["checkpoint_dir"])  # workers have other directories
    ray = connected_ray()
    _warn_if_small(ray, workers, gpu)
    job = ray.put((operator, pairs, settings.pop("validation_pairs", None), settings, postprocessing))
    with tempfile.TemporaryDirectory(prefix="ncprob-ray-", ignore_cleanup_errors=True) as temporary:
        history, state = _run(job, workers, gpu, restarts, os.fspath(storage_path or temporary))
    operator.load_state_dict(load_tensors(state))
    operator.eval()
    return history


def _run(job: Any, workers: int, gpu: bool, restarts: int, storage_path: str) -> tuple[History, bytes]:
    """What the first worker returns."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError, WorkerGroupError
    from ray.train.torch import TorchConfig, TorchTrainer

    trainer = TorchTrainer(
        _work,
        train_loop_config={"job": job},
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpu),
        torch_config=TorchConfig(backend="nccl" if gpu else "gloo", timeout_s=int(TIMEOUT.total_seconds())),
        run_config=RunConfig(storage_path=storage_path, failure_config=FailureConfig(max_failures=restarts)),
    )
    try:
        return trainer.fit().return_value
    except WorkerGroupError as error:
        raise _told(error.worker_failures, workers) from error
    except TrainingFailedError as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[-1].rstrip(".")
        raise RuntimeError(
            f"Ray Train could not lead the workers: {line}. Check that ncprob and your own modules are installed on "
            "all machines of the cluster."
        ) from error


def _work(config: dict[str, Any]) -> tuple[History, bytes] | None:
    """What every worker does, in the group that Ray Train has formed."""
    import ray
    from ray.train import get_context

    rank, size = get_context().get_world_rank(), get_context().get_world_size()
    operator, pairs, held_out, settings, postprocessing = ray.get(config["job"])
    pairs, held_out = (given(rank, size) if callable(given) else given for given in (pairs, held_out))
    history = train(operator, pairs, validation_pairs=held_out, **settings)
    operator.postprocess(pairs, postprocessing, ranks=settings.get("ranks", "same"))
    # Ray Train takes no tensors back; copies, because encoders may share their weights, which safetensors refuses.
    state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in operator.state_dict().items()}
    return (history, tensor_bytes(state)) if rank == 0 else None


def _told(failures: dict[int, Exception], workers: int) -> Exception:
    """What was refused, else what ended a worker; a rank that only misses another one is not the cause."""
    for error in failures.values():
        if isinstance(error, ValueError | TypeError):
            return error
    rank = min(failures, key=lambda each: (f"Rank {each} of" in str(failures[each]), each))
    # Ray tells first that a worker is not well and then why.
    why = getattr(failures[rank], "health_check_failure", failures[rank])
    line = (str(why).splitlines() or [type(why).__name__])[0].rstrip(".")
    return RuntimeError(
        f"Rank {rank} of {workers} ended on Ray: {line}. Call again, or allow `restarts`; with `checkpoint_dir` "
        "training goes on from the last checkpoint."
    )


def _warn_if_small(ray: Any, workers: int, gpu: bool) -> None:
    """Ray waits for a cluster to grow, and says little of it."""
    there = ray.cluster_resources()
    for what in ("CPU", "GPU")[: 1 + gpu]:
        if there.get(what, 0) < workers:
            warnings.warn(
                f"the Ray cluster has {there.get(what, 0):g} {what}s for {workers} workers; training begins once it "
                "has grown. Lower `workers` if it does not grow by itself.",
                stacklevel=3,
            )
