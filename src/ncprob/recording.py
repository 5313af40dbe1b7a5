"""A training step recorded once on an accelerator and replayed, without the time that Python takes to launch it.

Steps of small networks are a hundred kernels of a few microseconds each: launched one by one from Python, the device
waits most of the time. A CUDA graph launches all of them at once. It repeats the same kernels on the same memory, so a
recorded step may not depend on anything that the host decides: batches are copied to a place of their own before each
replay, and what changes from step to step (the learning rate) is a number on the device.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ncprob.encoders import MLP, InputGate, ParallelMLP
from ncprob.pairs import Batch, map_tensors, tensors_of

WARM_UP = 3  # steps before recording, in which libraries choose kernels and the optimiser takes its memory
# What these compute is the same sequence of kernels for every batch; of other modules nobody knows.
PLAIN = {MLP, ParallelMLP, InputGate, nn.Sequential, nn.Linear, nn.GELU, nn.ReLU, nn.ParameterList, nn.ModuleList}

Step = Callable[[Any, Any], None]


def is_recordable(model: nn.Module) -> bool:
    """Whether steps of `model` may be recorded: plain networks on a CUDA device; the outermost module is the caller's.

    Examples
    --------
    >>> is_recordable(MLP(1, (8,), 4))  # on the CPU there is nothing to gain
    False
    """
    inside = list(model.modules())[0 if type(model) in PLAIN else 1 :]
    on_device = all(tensor.is_cuda for tensor in model.state_dict().values())
    return on_device and all(_is_plain(part) for part in inside)


def _is_plain(module: nn.Module) -> bool:
    """One of ours, as it is: a hook would be heard once, while recording."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return type(module) in PLAIN and not any(hooks)


class RecordedStep:
    """Calls a step until it is warm, records it, and replays it for every batch of the same shape from then on.

    A batch of another shape, and every batch where recording fails, is computed step by step as ever.
    """

    def __init__(self) -> None:
        self._calls, self._failed = 0, False
        self._replay: Callable[[], None] | None = None
        self._places: list[Tensor] = []

    def __call__(self, step: Step, x: Any, y: Any) -> None:
        """One step on a batch."""
        if self._calls < WARM_UP:
            aside(lambda: step(x, y))
            self._calls += 1
            return
        if self._replay is None and not self._failed:
            self._record(step, x, y)
        given = tensors_of((x, y))
        if self._replay is None or [part.shape for part in given] != [place.shape for place in self._places]:
            step(x, y)
            return
        for place, part in zip(self._places, given, strict=True):
            place.copy_(part)
        self._replay()

    def forget(self) -> None:
        """Begin again with warming up, because memory or what a step does has changed."""
        self._calls, self._replay, self._places = 0, None, []

    def _record(self, step: Step, x: Any, y: Any) -> None:
        places: Batch = map_tensors(torch.clone, x), map_tensors(torch.clone, y)
        self._places = tensors_of(places)
        try:
            self._replay = capture(lambda: step(*places))
        except RuntimeError as error:  # also of too little memory: a recording keeps its own beside that of others
            self._failed, self._places = True, []
            first = (str(error).splitlines() or [type(error).__name__])[0]
            warnings.warn(f"training steps could not be recorded ({first}); they run one by one.", stacklevel=2)


def aside(work: Callable[[], None]) -> None:
    """Work on a stream of its own, as what is recorded later will be."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)


def capture(work: Callable[[], None]) -> Callable[[], None]:
    """Record `work`, which is not executed meanwhile; the result executes it."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads may use the device meanwhile
        work()
    return graph.replay
