"""The same training on a CPU and on an accelerator, beside what arithmetic, memory and launches allow.

    python -m benchmarks.accelerator --device cuda
    OMP_NUM_THREADS=2 taskset -c 0,1 python -m benchmarks.accelerator --device cpu

An operator of rank 100 with two hidden layers of 64 learns from 20 inputs by the loop of `ncprob.train`, validation
included. Every setting runs on the same rows from the same weights. `--parts` chooses among

    train      steps per second and the loss reached, for every setting, number of rows and batch size
    floor      operations, bytes and kernels of one step, and what the device needs at least for them
    agree      CPU and accelerator, recorded steps and others: the same result?
    waits      how often the host waits for the device while it trains
    ensemble   networks as one batched product, and one by one
    memory     a device with too little memory: training goes on with smaller batches
    fit        `NCPRegressor` from beginning to end, and its predictions
    predict    quantiles of 10⁷ rows (10⁶ on a CPU)

A line of the file belongs to (part, setting, rows, batch, device); the same command writes it anew.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.records import RESULTS, Records
from ncprob import NCPRegressor, optimization, recording
from ncprob.encoders import MLP, ParallelMLP
from ncprob.losses import covariance_loss, orthonormality_penalty
from ncprob.operator import SpectralOperator
from ncprob.optimization import History, Runtime, Schedule
from ncprob.pairs import TensorPairs, tensors_of
from ncprob.training import train_operator

KEYS = ["part", "setting", "n", "batch", "device"]
COLUMNS = [*KEYS, "rank", "inputs", "steps", "seconds", "steps_per_second", "held_out_loss", "peak_mib", "gflop"]
COLUMNS += ["mbyte", "kernels", "arithmetic_ms", "traffic_ms", "launch_ms", "value", "note", "machine"]
RANK, INPUTS, HIDDEN = 100, 20, (64, 64)
GAMMA = 1e-3
SIZES, BATCHES = (10**5, 10**6), (2048, 16384)
SETTINGS = ("one by one", "tf32", "bf16", "compiled", "recorded", "recorded tf32", "recorded bf16")


class Brain16(nn.Module):
    """An encoder computed in bfloat16; its features are float32, so that covariances are."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, inputs: Tensor) -> Tensor:
        """Features, float32."""
        with torch.autocast(inputs.device.type, dtype=torch.bfloat16, cache_enabled=False):
            features = self.encoder(inputs)
        return features.float()


def pairs(n: int, device: torch.device, seed: int = 0) -> TensorPairs:
    """y = sin(3 x₀) + x₁ + (0.3 + 0.2 x₂)·ε, divided by 1.1; the other inputs say nothing."""
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(n, INPUTS, generator=generator) - 1
    noise = torch.randn(n, generator=generator)
    y = torch.sin(3 * x[:, 0]) + x[:, 1] + (0.3 + 0.2 * x[:, 2]) * noise
    return TensorPairs(x, y[:, None] / 1.1, None, device)


def new_operator(device: torch.device, rank: int = RANK) -> SpectralOperator:
    """The same weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        operator = SpectralOperator(MLP(INPUTS, HIDDEN, rank, input_gate=True), MLP(1, HIDDEN, rank), rank)
    return operator.to(device)


@contextmanager
def precision(name: str) -> Iterator[None]:
    """float32 products by tf32 inside the block, if asked for: all of them, also where it is not safe, for the gain."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if name.endswith("tf32") else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def prepared(setting: str, device: torch.device, rank: int = RANK) -> SpectralOperator:
    operator = new_operator(device, rank)
    if setting.endswith("bf16"):
        operator.x_encoder, operator.y_encoder = Brain16(operator.x_encoder), Brain16(operator.y_encoder)
        recording.PLAIN.add(Brain16)
    if setting == "compiled":
        operator.x_encoder.compile()
        operator.y_encoder.compile()
    return operator


def trained(
    setting: str,
    data: TensorPairs,
    held: TensorPairs,
    device: torch.device,
    *,
    batch: int,
    steps: int,
    every: int = 100,
) -> tuple[SpectralOperator, History]:
    """The loop of `ncprob.train` under a setting."""
    operator = prepared(setting, device)
    with precision(setting):
        history = train_operator(
            operator, data, loss="covariance", gamma=GAMMA, gate_strength=0.03, validation_pairs=held,
            schedule=Schedule(max_steps=steps, batch_size=batch, early_stopping=False, validate_every=every),
            runtime=Runtime(progress=False, description="operator", record=setting.startswith("recorded")),
        )  # fmt: skip
    return operator, history


class Bench:
    """Measurements on one device; each gives lines of the file."""

    def __init__(self, device: str, steps: int, records: Records) -> None:
        self.device, self.steps, self.records = torch.device(device), steps, records
        self.cuda = self.device.type == "cuda"
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        name = torch.cuda.get_device_name() if self.cuda else f"{processor()}, {cores} cores"
        self.machine = f"{name}; torch {torch.__version__}, {torch.get_num_threads()} threads"

    def line(self, part: str, setting: str, n: int, batch: int, **facts: Any) -> None:
        """Write a line in place of the one with the same keys."""
        keys = {"part": part, "setting": setting, "n": n, "batch": batch, "device": self.device.type}
        text = {name: str(value) for name, value in keys.items()}
        self.records.remove(lambda row: all(row[name] == value for name, value in text.items()))
        self.records.append(keys | {"rank": RANK, "inputs": INPUTS, "machine": self.machine} | facts)
        shown = {name: f"{value:.5g}" if isinstance(value, float) else value for name, value in facts.items()}
        print(f"{part} | {setting} | n {n} | batch {batch} | {shown}", flush=True)

    def wait(self) -> None:
        """Until the device has done what it was told."""
        if self.cuda:
            torch.cuda.synchronize()

    def seconds(self, work: Callable[[], Any], repeats: int, warm_up: int = 3) -> float:
        """Of one call, in the long run."""
        for _ in range(warm_up):
            work()
        self.wait()
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        self.wait()
        return (time.perf_counter() - start) / repeats

    # ---------------------------------------------------------------- parts

    def train(self) -> None:
        """All settings on the accelerator, the plain one on a CPU, where large batches get fewer steps."""
        settings = SETTINGS if self.cuda else SETTINGS[:1]
        held = pairs(10_000, self.device, seed=1)
        for n in SIZES:
            data = pairs(n, self.device)
            for batch in BATCHES:
                steps = self.steps if self.cuda or batch == min(BATCHES) else max(20, self.steps // 10)
                for setting in settings:
                    self._train(setting, data, held, n, batch, steps)

    def _train(self, setting: str, data: TensorPairs, held: TensorPairs, n: int, batch: int, steps: int) -> None:
        before = self._reset_peak()
        start = time.perf_counter()
        try:
            _, history = trained(setting, data, held, self.device, batch=batch, steps=steps, every=max(10, steps // 10))
        except Exception as error:  # a setting that this machine does not have must not cost the others
            traceback.print_exc()
            self.line("train", setting, n, batch, note=f"failed: {str(error).splitlines()[0][:200]}")
            return
        self.wait()
        # Without what comes before the first validation: compiling, recording, the first touch of memory.
        speed = (history.step[-1] - history.step[0]) / (history.seconds[-1] - history.seconds[0])
        self.line(
            "train", setting, n, batch, steps=steps, seconds=time.perf_counter() - start, steps_per_second=speed,
            held_out_loss=min(history.validation_loss), peak_mib=self._peak() - before,
            note=f"recoveries {history.recoveries}" if history.recoveries else None,
        )  # fmt: skip

    def _reset_peak(self) -> float:
        if not self.cuda:
            return float("nan")
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_reserved() / 2**20

    def _peak(self) -> float:
        return torch.cuda.max_memory_reserved() / 2**20 if self.cuda else float("nan")

    def floor(self) -> None:
        """What one step is made of, and what the device can do: measured, not from a data sheet."""
        peak = {name: self._peak_flops(name) for name in (("float32", "tf32", "bf16") if self.cuda else ("float32",))}
        bandwidth = self._bandwidth()
        single, replayed = self._launches()
        for name, flops in peak.items():
            self.line("floor", f"peak {name}", 0, 0, value=flops / 1e12, note="TFLOP/s of a large matrix product")
        self.line("floor", "bandwidth", 0, 0, value=bandwidth / 1e9, note="GB/s of a copy, read and written")
        self.line("floor", "launch", 0, 0, value=1e6 * single, note="microseconds per kernel launched from Python")
        if self.cuda:
            self.line("floor", "replay", 0, 0, value=1e6 * replayed, note="microseconds per kernel inside a recording")
        for batch in BATCHES:
            step = self._step(batch)
            flop, traffic = counted(step)
            kernels = self._kernels(step)
            alone = self.seconds(step, 20 if self.cuda else 5)
            self.line(
                "floor", "one step", batch, batch, gflop=flop / 1e9, mbyte=traffic / 1e6, kernels=kernels,
                arithmetic_ms=1e3 * flop / peak["float32"], traffic_ms=1e3 * traffic / bandwidth,
                launch_ms=1e3 * kernels * (replayed if self.cuda else single), value=1e3 * alone,
                note="value: milliseconds of the step, launched from Python",
            )  # fmt: skip

    def _step(self, batch: int) -> Callable[[], None]:
        operator, data = new_operator(self.device), pairs(batch, self.device)
        optimizer = torch.optim.AdamW(operator.parameters(), fused=True)

        def step() -> None:
            u, v = operator.encode(data.x, data.y)
            loss = covariance_loss(u, v, operator.trained_values) + GAMMA * orthonormality_penalty(u, v)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(operator.parameters(), 1.0)
            optimizer.step()

        return step

    def _peak_flops(self, name: str) -> float:
        size = 8192 if self.cuda else 2048
        kind = torch.bfloat16 if name == "bf16" else torch.float32
        a = torch.randn(size, size, device=self.device).to(kind)
        with precision(name):
            return 2 * size**3 / self.seconds(lambda: a @ a, 10)

    def _bandwidth(self) -> float:
        a = torch.zeros(2**28 if self.cuda else 2**26, device=self.device)
        b = torch.empty_like(a)
        return 2 * 4 * a.numel() / self.seconds(lambda: b.copy_(a), 10)

    def _launches(self) -> tuple[float, float]:
        a = torch.zeros(8, device=self.device)
        single = self.seconds(lambda: a.add_(1), 3000)
        if not self.cuda:
            return single, single

        def thousand() -> None:
            for _ in range(1000):
                a.add_(1)

        recording.aside(thousand, self.device)
        return single, self.seconds(recording.capture(thousand, self.device), 20) / 1000

    def _kernels(self, step: Callable[[], None]) -> int:
        """Kernels and copies of a step; on a CPU operations that compute."""
        if not self.cuda:
            return Traffic.of(step).operations
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            step()
            self.wait()
        return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events())

    def agree(self) -> None:
        """Losses and singular values of the accelerator beside those of the CPU, and of recorded steps."""
        data, held = pairs(10_000, torch.device("cpu")), pairs(5000, torch.device("cpu"), seed=1)
        there = pairs(10_000, self.device), pairs(5000, self.device, seed=1)
        settings = ("one by one", "recorded", "recorded tf32", "recorded bf16") if self.cuda else ("one by one",)
        for steps in (1, 20, 400):
            how = {"batch": 2048, "steps": steps, "every": min(steps, 20)}
            base_operator, base = trained("one by one", data, held, torch.device("cpu"), **how)
            base_values = base_operator.postprocess(data).singular_values
            for setting in settings:
                operator, history = trained(setting, *there, self.device, **how)
                values = operator.postprocess(there[0]).singular_values.cpu()
                loss, wanted = history.validation_loss[-1], base.validation_loss[-1]
                apart = float((values - base_values).detach()[:10].abs().max())
                self.line(
                    "agree", f"{setting}, {steps} steps", 10_000, 2048, steps=steps, held_out_loss=loss,
                    value=abs(loss - wanted) / abs(wanted), note=f"value: relative difference from the CPU's loss, "
                    f"{wanted:.7g}; ten singular values differ by at most {apart:.2g}",
                )  # fmt: skip

    def waits(self) -> None:
        """Waits that torch can tell, over 300 steps and three validations."""
        if not self.cuda:
            return
        data, held = pairs(10**5, self.device), pairs(5000, self.device, seed=1)
        for setting in ("one by one", "recorded"):
            seen: dict[int, int] = {}
            for steps in (100, 300):  # the difference is that of 200 steps and two validations
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    torch.cuda.set_sync_debug_mode("warn")
                    try:
                        trained(setting, data, held, self.device, batch=2048, steps=steps)
                    finally:
                        torch.cuda.set_sync_debug_mode("default")
                waits = [each for each in told if "synchronizing" in str(each.message)]
                seen[steps] = len(waits)
            places = sorted({f"{Path(each.filename).name}:{each.lineno}" for each in waits})
            self.line("waits", setting, 10**5, 2048, value=seen[300] - seen[100], note=f"from {', '.join(places)}")

    def ensemble(self) -> None:
        """Forward and backward of networks as batched products and one after the other."""
        x = torch.randn(1024, INPUTS, device=self.device)
        for size in (4, 20, 64):
            together = ParallelMLP(size, INPUTS, HIDDEN, 15).to(self.device)
            apart = nn.ModuleList(MLP(INPUTS, HIDDEN, 15) for _ in range(size)).to(self.device)

            def batched(networks: ParallelMLP = together) -> None:
                networks(x).square().mean().backward()

            def separate(networks: nn.ModuleList = apart) -> None:
                sum(network(x).square().mean() for network in networks).backward()  # type: ignore[union-attr]

            for setting, work in (("batched", batched), ("one by one", separate)):
                seconds = self.seconds(work, 50 if self.cuda else 10)
                self.line("ensemble", setting, size, 1024, seconds=seconds, note="n: networks; forward and backward")

    def memory(self) -> None:
        """Batches of 2¹⁹ rows on a device that may take 1.5 GiB: real errors of its allocator, then smaller batches."""
        if not self.cuda:
            return
        n, batch = 2**20, 2**19
        data, held = pairs(n, self.device), pairs(5000, self.device, seed=1)
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(1.5 * 2**30 / total)
        try:
            for setting in ("one by one", "recorded"):
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    _, history = trained(setting, data, held, self.device, batch=batch, steps=40, every=20)
                texts = [str(each.message)[:160] for each in told if "memory" in str(each.message)]
                self.line(
                    "memory", setting, n, batch, steps=history.n_steps, held_out_loss=history.validation_loss[-1],
                    value=len(texts), note=" | ".join(texts),
                )  # fmt: skip
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)

    def fit(self) -> None:
        """Both coordinates without trees, which a CPU grows in any case; then quantiles of many rows."""
        n, asked = 10**5, 10**6 if self.cuda else 10**5
        data, new = pairs(n, torch.device("cpu")), pairs(asked, torch.device("cpu"), seed=2)
        X, y, X_new = data.x.numpy(), data.y[:, 0].numpy(), new.x.numpy()
        for coordinates in ("raw", "residual"):
            for setting in ("recorded", "one by one") if self.cuda else ("one by one",):
                recordable = optimization.is_recordable
                if setting == "one by one":
                    optimization.is_recordable = lambda model: False
                try:
                    before, start = self._reset_peak(), time.perf_counter()
                    model = NCPRegressor(
                        rank=RANK, coordinates=coordinates, tree_inputs=False, max_steps=self.steps, batch_size=2048,
                        early_stopping=False, device=self.device, random_state=0, progress=False,
                    ).fit(X, y)  # fmt: skip
                    seconds = time.perf_counter() - start
                finally:
                    optimization.is_recordable = recordable
                start = time.perf_counter()
                model.predict_quantiles(X_new)
                speed = asked / (time.perf_counter() - start)
                self.line(
                    "fit", f"{coordinates}, {setting}", n, 2048, steps=model.n_steps_, seconds=seconds,
                    held_out_loss=model._held_out_loss, peak_mib=self._peak() - before, value=speed,
                    note=f"value: rows per second of predict_quantiles, {asked} rows",
                )  # fmt: skip

    def predict(self) -> None:
        """Quantiles of 10⁷ rows by chunks, and what that adds to the host's memory beside rows and answers."""
        data, asked = pairs(10**4, torch.device("cpu")), 10**7 if self.cuda else 10**6
        X_new = pairs(asked, torch.device("cpu"), seed=2).x.double().numpy()
        for coordinates in ("raw", "residual"):
            model = NCPRegressor(
                coordinates=coordinates, tree_inputs=False, max_steps=300, device=self.device, random_state=0,
                progress=False,
            ).fit(data.x.numpy(), data.y[:, 0].numpy())  # fmt: skip
            model.predict_quantiles(X_new[:20_000])
            before, resident, start = self._reset_peak(), _peak_resident(), time.perf_counter()
            model.predict_quantiles(X_new)
            seconds = time.perf_counter() - start
            answers = 3 * 8 * asked / 2**20
            self.line(
                "predict", coordinates, asked, 8192, seconds=seconds, value=asked / seconds,
                peak_mib=self._peak() - before, note=f"value: rows per second; the host's peak grew by "
                f"{_peak_resident() - resident:.0f} MiB, the answers are {answers:.0f} MiB",
            )  # fmt: skip


def _peak_resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


class Traffic(TorchDispatchMode):
    """Bytes that operations read and write, each taken by itself; views move nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view and "empty" not in func.name() and "detach" not in func.name():
            self.operations += 1
            self.bytes += sum(t.numel() * t.element_size() for t in tensors_of((list(args), result)))
        return result

    @classmethod
    def of(cls, step: Callable[[], None]) -> Traffic:
        """Of one call."""
        with cls() as traffic:
            step()
        return traffic


def counted(step: Callable[[], None]) -> tuple[int, int]:
    """Floating point operations of the matrix products, and bytes, of a step."""
    step()
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops(), Traffic.of(step).bytes


def processor() -> str:
    """Name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


PARTS = ("floor", "waits", "agree", "train", "ensemble", "memory", "fit", "predict")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=RESULTS / "accelerator.csv")
    options = parser.parse_args(arguments)
    if "OMP_NUM_THREADS" in os.environ:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    bench, failures = Bench(options.device, options.steps, Records(options.out, COLUMNS)), 0
    for part in options.parts:
        start = time.perf_counter()
        try:
            getattr(bench, part)()
        except Exception:  # the other parts are worth having
            traceback.print_exc()
            failures += 1
        print(f"-- {part}: {time.perf_counter() - start:.1f} s", flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    raise SystemExit(main())
