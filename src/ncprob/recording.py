"""A training step recorded once on an accelerator and replayed, without the time that Python takes to launch it.

Steps of small networks are a hundred kernels of a few microseconds each: launched one by one from Python, the device
waits most of the time. A CUDA graph launches all of them at once. It repeats the same kernels on the same memory, so a
recorded step may not depend on anything that the host decides: batches are copied to a place of their own before each
replay, and what changes from step to step (the learning rate) is a number on the device.
"""

from __future__ import annotations

import functools
import threading
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
    heard = any(p._backward_hooks or p._post_accumulate_grad_hooks for p in model.parameters())
    return on_device and not heard and all(_is_plain(part) for part in inside)


def _is_plain(module: nn.Module) -> bool:
    """One of ours, as it is: a hook would be heard once, while recording, and what else was put on it is unknown."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    changed = "forward" in vars(module) or module._compiled_call_impl is not None
    return type(module) in PLAIN and not any(hooks) and not changed


class RecordedStep:
    """Calls a step until it is warm, records it, and replays it for every batch of the same shape from then on.

    A batch of another shape, and every batch where recording fails, is computed step by step as ever.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._calls, self._failed = device, 0, False
        self._replay: Callable[[], None] | None = None
        self._places: list[Tensor] = []

    def __call__(self, step: Step, x: Any, y: Any) -> None:
        """One step on a batch."""
        if self._calls < WARM_UP:
            aside(lambda: step(x, y), self._device)
            self._calls += 1
            return
        if self._replay is None and not self._failed:
            self._record(step, x, y)
        given = tensors_of((x, y))
        if self._replay is None or _forms(given) != _forms(self._places):
            step(x, y)
            return
        for place, part in zip(self._places, given, strict=True):
            place.copy_(part.detach())
        self._replay()

    def forget(self) -> None:
        """Begin again with warming up, because memory or what a step does has changed."""
        self._calls, self._replay, self._places = 0, None, []

    def _record(self, step: Step, x: Any, y: Any) -> None:
        places: Batch = map_tensors(_copy, x), map_tensors(_copy, y)
        self._places = tensors_of(places)
        try:
            self._replay = capture(lambda: step(*places), self._device)
        except RuntimeError as error:  # also of too little memory: a recording keeps its own beside that of others
            self._failed, self._places = True, []
            first = (str(error).splitlines() or [type(error).__name__])[0]
            warnings.warn(f"training steps could not be recorded ({first}); they run one by one.", stacklevel=2)


def _copy(part: Tensor) -> Tensor:
    return part.detach().clone()


def _forms(parts: list[Tensor]) -> list[tuple[torch.Size, torch.dtype]]:
    return [(part.shape, part.dtype) for part in parts]


_one_at_a_time = threading.Lock()  # what another thread does on the stream meanwhile would be recorded with the rest


@functools.cache
def _stream_of(device: torch.device) -> torch.cuda.Stream:
    """One stream for all recordings on a device: libraries take memory for every stream that they meet."""
    return torch.cuda.Stream(device)


def aside(work: Callable[[], None], device: torch.device) -> None:
    """Work on the stream on which it is recorded later."""
    with _one_at_a_time, torch.cuda.device(device):
        stream, before = _stream_of(device), torch.cuda.current_stream()
        stream.wait_stream(before)
        try:
            with torch.cuda.stream(stream):
                work()
        finally:
            before.wait_stream(stream)


def capture(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Record `work`, which is not executed meanwhile; the result executes it."""
    with _one_at_a_time, torch.cuda.device(device):
        graph, stream, before = torch.cuda.CUDAGraph(), _stream_of(device), torch.cuda.current_stream()
        # Other threads may use the device meanwhile. Where recording fails torch stays on its stream: `before` is back.
        recorded = torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local")
        with torch.cuda.stream(before), recorded:
            work()
    return graph.replay
