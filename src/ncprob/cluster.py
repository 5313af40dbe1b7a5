"""On a Ray cluster: the processes of `ncprob.train`, started and watched by Ray Train; answers in those of Ray Data."""

from __future__ import annotations

import inspect
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as tensor_bytes
from sklearn.utils.validation import check_is_fitted

from ncprob import storage
from ncprob._validation import check_choice, check_integer
from ncprob.datafiles import input_arrays
from ncprob.estimators import NCPClassifier, NCPRegressor
from ncprob.operator import POSTPROCESSINGS, PostProcessing, SpectralOperator
from ncprob.optimization import History
from ncprob.predictions import (
    CHUNK,
    answer_table,
    asked,
    check_columns,
    check_question,
    kept_names,
    loaded,
)
from ncprob.questions import Model, Wanted
from ncprob.ranks import TIMEOUT
from ncprob.training import train
from ncprob.workers import connected_ray

__all__ = ["predict_dataset", "train_on_ray"]

HOLD = ("same", "own")
DATASET, BATCH = "the dataset", "a batch of the dataset"  # as messages call them

# -------------------------------------------------------------------- training


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
    ConnectionError
        If nobody listens at the host and port in `RAY_ADDRESS`.

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
    _warn_if_small(ray, {"CPU": workers} | ({"GPU": workers} if gpu else {}), "Lower `workers`")
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


def _warn_if_small(ray: Any, needed: Mapping[str, int], remedy: str) -> None:
    """Ray waits for a cluster to grow, and says little of it."""
    there = ray.cluster_resources()
    for what, count in needed.items():
        if there.get(what, 0) < count:
            warnings.warn(
                f"the Ray cluster has {there.get(what, 0):g} {what}s and {count} are needed; work begins once it has "
                f"grown. {remedy} if it does not grow by itself.",
                stacklevel=3,
            )


# -------------------------------------------------------------------- prediction


def predict_dataset(
    model: Any,
    dataset: Any,
    *,
    mean: bool = False,
    std: bool = False,
    quantiles: float | Sequence[float] = (),
    intervals: float | Sequence[float] = (),
    cdf: float | Sequence[float] = (),
    keep: str | Sequence[str] = (),
    workers: int = 2,
    batch_size: int = CHUNK,
    threads: int = 1,
) -> Any:
    """Answers for the rows of a Ray dataset, as a Ray dataset: read from and written to whatever Ray Data knows.

    Nothing is computed before its rows are asked for. Each worker is an actor that gets the model once; rows come in
    the order in which workers are done with them, so `keep` a column that tells them.

    Parameters
    ----------
    model : path, NCPRegressor or NCPClassifier
        Directory of a saved model, which all machines see, or a fitted estimator, which travels to them.
    dataset : ray.data.Dataset
        With the columns of the model; others are not looked at.
    mean, std, quantiles, intervals, cdf
        What is asked, as for `ncprob.predict_files`; the columns of answers are the same.
    keep : str or sequence of str
        Columns of the dataset to give beside the answers; `"*"` for all.
    workers : int
        Most actors at a time; Ray starts them while rows wait and CPUs are free.
    batch_size : int
        Most rows that a worker answers at once, which bounds its memory.
    threads : int
        Of each worker, and the CPUs that it reserves. One more CPU is needed for reading.

    Returns
    -------
    ray.data.Dataset
        With the columns to keep and the answers.

    Raises
    ------
    ValueError, TypeError
        For options, models and columns that cannot be used. Where Ray does not know the columns before it has computed
        rows, and for values that cannot be used, Ray raises them in an error of its own while rows are computed.

    Notes
    -----
    Uses the cluster that `ray.init` was called for. Needs the extra `distributed`. For Parquet files in which finished
    ones are to be kept when the job is started again, use `ncprob.predict_files` with `workers="ray"`.

    Examples
    --------
    >>> import ray  # doctest: +SKIP
    >>> rows = ray.data.read_parquet("s3://bucket/in")  # doctest: +SKIP
    >>> answers = predict_dataset("model/", rows, mean=True, intervals=0.9, keep="id")  # doctest: +SKIP
    >>> answers.write_parquet("s3://bucket/out")  # doctest: +SKIP
    """
    for name, value in (("workers", workers), ("batch_size", batch_size), ("threads", threads)):
        check_integer(value, name, minimum=1)
    wanted = asked(mean, std, quantiles, intervals, cdf)
    kept = (keep,) if isinstance(keep, str) else tuple(keep)
    known, saved = _opened(model)
    check_question(known, wanted)
    ray = connected_ray()
    from ray.data import ActorPoolStrategy, Dataset

    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"`dataset` must be a ray.data.Dataset; got {type(dataset).__name__}. Make one, as by ray.data.from_arrow."
        )
    types = _types(dataset)
    if types is not None:
        used = [*check_columns(known, DATASET, types), *kept_names(DATASET, list(types), kept)]
        dataset = dataset.select_columns(list(dict.fromkeys(used)))  # so that no others are read
    _warn_if_small(ray, {"CPU": threads + 1}, "Lower `threads`, or give it more (one reads, the others answer),")
    return dataset.map_batches(
        _Worker,
        fn_constructor_args=(ray.put(known) if saved is None else saved, wanted, kept, threads),
        batch_size=batch_size,
        batch_format="pyarrow",
        # With all CPUs taken by a pool of fixed size, nothing would be read and all would wait for ever.
        compute=ActorPoolStrategy(min_size=1, max_size=workers),
        num_cpus=threads,
    )


def _opened(model: Any) -> tuple[Model, tuple[str, str] | None]:
    """A model, and the path and checksum of a saved one."""
    if isinstance(model, str | os.PathLike):
        saved = os.fspath(Path(model).resolve()), storage.checksum(model)
        return loaded(*saved), saved
    if not isinstance(model, NCPRegressor | NCPClassifier):
        raise TypeError(
            f"`model` must be the directory of a saved model or a fitted estimator; got {type(model).__name__}. Pass "
            "one of these."
        )
    check_is_fitted(model)
    if model._device.type != "cpu":
        raise ValueError(f"`model` must be on the CPU to travel; it is on {model._device}. Save it and pass the path.")
    return model, None


def _types(dataset: Any) -> dict[str, Any] | None:
    """Columns and their arrow types, if Ray knows them before it computes rows; unknown types are left open."""
    import pyarrow

    schema = dataset.schema(fetch_if_missing=False)
    if schema is None:
        return None
    told = schema.base_schema  # pandas' types are arrow's only once they are converted
    types = told.types if isinstance(told, pyarrow.Schema) else [pyarrow.null()] * len(told.names)
    return dict(zip(told.names, types, strict=True))


class _Worker:
    """An actor of Ray Data, with the model and what is asked of it."""

    def __init__(self, model: Any, wanted: Wanted, keep: tuple[str, ...], threads: int) -> None:
        torch.set_num_threads(threads)
        self.model: Model = loaded(*model) if isinstance(model, tuple) else connected_ray().get(model)
        self.wanted, self.keep = wanted, keep

    def __call__(self, batch: Any) -> Any:
        """Answers for an arrow table with rows: Ray hands on others as they are."""
        types = dict(zip(batch.schema.names, batch.schema.types, strict=True))
        inputs = check_columns(self.model, BATCH, types)
        kept = kept_names(BATCH, list(types), self.keep)
        columns = input_arrays(BATCH, batch, inputs, set(self.model.categories_))
        return answer_table(self.model, columns, self.wanted, {name: batch.column(name) for name in kept})
