"""Steps that are recorded and replayed: the same result; and nothing in a step waits for the device."""

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ncprob import optimization, recording
from ncprob.encoders import MLP, ParallelMLP
from ncprob.losses import LOSSES, WAITING
from ncprob.operator import SpectralOperator
from ncprob.optimization import Population, Runtime, Schedule, minimize
from ncprob.pairs import TensorPairs, index_batches
from ncprob.recording import WARM_UP, RecordedStep, aside, capture, is_recordable
from ncprob.training import train_operator

CPU = torch.device("cpu")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator that torch sees")


def operator_of(rank=6, gate=True):
    torch.manual_seed(0)
    return SpectralOperator(MLP(3, (16,), rank, input_gate=gate), MLP(1, (16,), rank), rank)


def pairs_of(n=300, seed=1, device=None):
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))
    noise = torch.randn(n, 1, generator=torch.Generator().manual_seed(seed + 1))
    return TensorPairs(x, x[:, :1] + 0.5 * noise, None, device)


def train(operator, data, held, record, loss="covariance", **schedule):
    plan = {"max_steps": 40, "batch_size": 64, "early_stopping": False, "validate_every": 10} | schedule
    return train_operator(
        operator, data, loss=loss, gamma=1e-3, gate_strength=0.03, validation_pairs=held,
        schedule=Schedule(**plan), runtime=Runtime(progress=False, record=record),
    )  # fmt: skip


class Recorder:
    """Stands in for CUDA graphs: what is recorded is called again with what lies in its places."""

    def __init__(self, monkeypatch):
        self.recorded, self.replayed, self.aside = 0, 0, 0
        monkeypatch.setattr(recording, "capture", self.capture)
        monkeypatch.setattr(recording, "aside", self.beside)
        monkeypatch.setattr(optimization, "is_recordable", lambda model: True)
        # On a CPU the optimiser refuses to be recorded; what it computes is the same.
        adam = torch.optim.AdamW
        monkeypatch.setattr(torch.optim, "AdamW", lambda *args, capturable, **kwargs: adam(*args, **kwargs))

    def beside(self, work, device):
        self.aside += 1
        work()

    def capture(self, work, device):
        self.recorded += 1

        def replay():
            self.replayed += 1
            work()

        return replay


class TestRecordedStep:
    @pytest.fixture(autouse=True)
    def recorder(self, monkeypatch):
        self.recorder = Recorder(monkeypatch)

    def test_every_batch_is_seen_once_and_in_order(self):
        seen, step = [], RecordedStep(CPU)
        for k in range(10):
            step(lambda x, y: seen.append((float(x[0]), float(y["z"][0]))), torch.full((4,), k), {"z": torch.ones(4)})
        assert seen == [(float(k), 1.0) for k in range(10)]
        assert (self.recorder.aside, self.recorder.recorded, self.recorder.replayed) == (WARM_UP, 1, 10 - WARM_UP)

    def test_a_replay_works_on_memory_of_its_own(self):
        places, step = [], RecordedStep(CPU)
        batches = [torch.full((4,), k) for k in range(8)]
        for batch in batches:
            step(lambda x, y: places.append(x.data_ptr()), batch, torch.ones(4))
        assert places[:WARM_UP] == [batch.data_ptr() for batch in batches[:WARM_UP]]
        assert len(set(places[WARM_UP:])) == 1

    def test_a_batch_of_another_shape_is_not_replayed(self):
        sizes, step = [], RecordedStep(CPU)
        for n in (4, 4, 4, 4, 4, 3, 4):
            step(lambda x, y: sizes.append(len(x)), torch.ones(n), torch.ones(n))
        assert sizes == [4, 4, 4, 4, 4, 3, 4]
        assert self.recorder.replayed == 3

    def test_recording_that_fails_is_told_once_and_no_step_is_lost(self, monkeypatch):
        def fail(work, device):
            raise torch.OutOfMemoryError("no memory\nfor this")

        monkeypatch.setattr(recording, "capture", fail)
        seen, step = [], RecordedStep(CPU)

        def run(begin, end):
            for k in range(begin, end):
                step(lambda x, y: seen.append(float(x)), torch.tensor(float(k)), torch.ones(1))

        run(0, WARM_UP)
        with pytest.warns(UserWarning, match=r"could not be recorded \(no memory\); they run one by one") as told:
            run(WARM_UP, 8)
        assert len(told) == 1
        assert seen == [float(k) for k in range(8)]

    def test_a_batch_of_another_type_is_not_replayed(self):
        types, step = [], RecordedStep(CPU)
        for dtype in 5 * [torch.float32] + [torch.float64]:
            step(lambda x, y: types.append(x.dtype), torch.ones(4, dtype=dtype), torch.ones(4))
        assert types[-1] == torch.float64
        assert self.recorder.replayed == 2

    def test_replays_do_not_collect_the_history_of_their_batches(self):
        found, step = [], RecordedStep(CPU)
        x = torch.ones(4, requires_grad=True)
        for _ in range(6):
            step(lambda x, y: found.append(x.requires_grad), 2 * x, torch.ones(4))
        assert found == [True] * WARM_UP + [False] * 3

    def test_after_forgetting_it_is_recorded_anew(self):
        step = RecordedStep(CPU)
        for _ in range(2):
            for _ in range(WARM_UP + 2):
                step(lambda x, y: None, torch.ones(1), torch.ones(1))
            step.forget()
        assert self.recorder.recorded == 2
        assert self.recorder.aside == 2 * WARM_UP


class Cuda:
    """Stands in for the streams and devices of torch, which here has none; a capture that fails stays on its stream."""

    def __init__(self, monkeypatch):
        self.device, self.streams, self.capturing = 0, {}, False
        recording._stream_of.cache_clear()
        for name in ("device_of", "stream", "graph"):
            monkeypatch.setattr(torch.cuda, name.removesuffix("_of"), getattr(self, name))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=None))
        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: self.current)

    @property
    def current(self):
        return self.streams.get((threading.get_ident(), self.device), "default")

    def switch(self, stream):
        self.streams[threading.get_ident(), self.device] = stream

    @contextmanager
    def device_of(self, device):
        before, self.device = self.device, device.index
        yield
        self.device = before

    @contextmanager
    def stream(self, stream):
        before = self.current
        self.switch(stream)
        try:
            yield
        finally:
            self.switch(before)

    @contextmanager
    def graph(self, graph, *, stream, capture_error_mode):
        assert not self.capturing, "one recording at a time"
        before, self.capturing = self.current, True
        self.switch(stream)
        try:
            yield
        finally:
            self.capturing = False
        self.switch(before)  # as torch does: not after an error


class Stream:
    def __init__(self, device):
        self.device = device

    def wait_stream(self, other):
        pass


class TestWhereItIsRecorded:
    DEVICE = torch.device("cuda", 1)

    @pytest.fixture(autouse=True)
    def cuda(self, monkeypatch):
        self.cuda = Cuda(monkeypatch)
        self.default = Stream(torch.device("cuda", 1))
        self.cuda.streams[threading.get_ident(), 1] = self.default
        yield
        recording._stream_of.cache_clear()

    def test_on_the_device_of_the_model_and_one_stream_of_it(self):
        """Kernels on a device whose streams do not record would run at once, and a replay would do nothing."""
        seen = []

        def note():
            seen.append((self.cuda.device, self.cuda.current))

        for run in (aside, aside, capture):
            run(note, self.DEVICE)
        assert {device for device, _ in seen} == {1}
        assert len({stream for _, stream in seen}) == 1
        assert seen[0][1].device == self.DEVICE
        assert self.cuda.device == 0

    @pytest.mark.parametrize("run", [aside, capture])
    def test_after_a_failure_the_stream_is_that_of_before(self, run):
        def fail():
            raise RuntimeError("operation not permitted when stream is capturing")

        with pytest.raises(RuntimeError, match="not permitted"):
            run(fail, self.DEVICE)
        assert self.cuda.streams[threading.get_ident(), 1] is self.default

    def test_other_threads_wait_with_theirs(self):
        busy, seen = threading.Event(), []

        def first():
            busy.set()
            time.sleep(0.05)
            seen.append("first")

        other = threading.Thread(target=lambda: capture(first, self.DEVICE))
        other.start()
        busy.wait()
        self.cuda.streams[threading.get_ident(), 0] = self.default
        aside(lambda: seen.append("second"), torch.device("cuda", 0))
        other.join()
        assert seen == ["first", "second"]


def weights_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_a_recorded_run_is_that_step_by_step(monkeypatch):
    data, held = pairs_of(), pairs_of(100, seed=3)
    plain = operator_of()
    expected = train(plain, data, held, record=False)
    recorder, recorded = Recorder(monkeypatch), operator_of()
    history = train(recorded, data, held, record=True)
    assert (recorder.recorded, recorder.replayed) == (1, 40 - WARM_UP)
    assert history.loss == pytest.approx(expected.loss, rel=1e-5)  # the rate is a float32 there
    for name, value in weights_of(plain).items():
        torch.testing.assert_close(recorded.state_dict()[name], value, rtol=1e-4, atol=1e-6)


def test_a_recorded_run_records_again_after_a_failure(monkeypatch):
    recorder, model = Recorder(monkeypatch), ParallelMLP(3, 2, (8,), 1)
    data, calls = TensorPairs(torch.randn(60, 2), torch.randn(60, 1)), []

    def objective(x, y):
        calls.append(None)
        factor = torch.ones(3)
        factor[1] = math.nan if len(calls) == 15 else 1.0
        return (factor * (model(x) - y).square().mean(dim=(1, 2))).sum()

    history = minimize(
        model, objective, data, score=None, settings={}, population=Population(torch.zeros(3)),
        schedule=Schedule(max_steps=60, batch_size=20, validate_every=10), runtime=Runtime(progress=False),
    )  # fmt: skip
    assert history.recoveries == 1
    assert recorder.recorded == 2
    assert len(calls) == 60
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_the_rate_is_float32_whatever_the_default_type_is(monkeypatch):
    """The fused optimiser of a CUDA device reads no other."""
    Recorder(monkeypatch)
    update, types = optimization._Run.update, set()

    def watched(run, loss):
        types.add(run._rate.dtype)
        update(run, loss)

    monkeypatch.setattr(optimization._Run, "update", watched)
    operator, data = operator_of(), pairs_of()
    torch.set_default_dtype(torch.float64)
    try:
        train(operator, data, None, record=True, max_steps=5)
    finally:
        torch.set_default_dtype(torch.float32)
    assert types == {torch.float32}


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_that_wait_are_not_recorded(loss, monkeypatch):
    """To try would not only fail: torch keeps what it has begun."""
    recorder = Recorder(monkeypatch)
    train(operator_of(), pairs_of(), None, record=True, loss=loss, max_steps=5)
    assert recorder.recorded == (loss not in WAITING)


def test_smaller_batches_are_recorded_anew(monkeypatch):
    recorder, operator = Recorder(monkeypatch), operator_of()
    encode, sizes = operator.encode, []

    def short_of_memory(x, y):
        sizes.append(len(x))
        if operator.training and len(x) > 40:
            raise torch.OutOfMemoryError("out of memory")
        return encode(x, y)

    monkeypatch.setattr(operator, "encode", short_of_memory)
    with pytest.warns(UserWarning, match="batches of 32 rows"):
        history = train(operator, pairs_of(), None, record=True)
    assert history.n_steps == 40
    assert recorder.recorded == 1
    assert sizes[:2] == [64, 32]


class TestWhatMayBeRecorded:
    def test_nothing_on_a_cpu(self):
        assert not is_recordable(operator_of())

    def allowed(self, model, monkeypatch):
        monkeypatch.setattr(torch.Tensor, "is_cuda", True)
        return is_recordable(model)

    def test_our_networks(self, monkeypatch):
        assert self.allowed(operator_of(), monkeypatch)
        assert self.allowed(ParallelMLP(2, 3, (8,), 1), monkeypatch)

    def test_no_encoder_of_the_user(self, monkeypatch):
        class Own(nn.Linear):
            pass

        assert not self.allowed(SpectralOperator(Own(3, 6), MLP(1, (8,), 6), 6), monkeypatch)

    def test_no_random_layers(self, monkeypatch):
        encoder = nn.Sequential(nn.Linear(3, 6), nn.Dropout())
        assert not self.allowed(SpectralOperator(encoder, MLP(1, (8,), 6), 6), monkeypatch)

    def test_nothing_with_hooks(self, monkeypatch):
        operator = operator_of()
        operator.x_encoder[1].register_forward_hook(lambda *_: None)
        assert not self.allowed(operator, monkeypatch)

    def test_nothing_with_hooks_on_weights(self, monkeypatch):
        operator = operator_of()
        operator.log_values_root.register_hook(lambda gradient: None)
        assert not self.allowed(operator, monkeypatch)

    def test_nothing_that_was_changed(self, monkeypatch):
        operator, compiled = operator_of(), operator_of()
        operator.x_encoder.forward = lambda x: torch.zeros(len(x), 6)
        compiled.x_encoder.compile()
        assert not self.allowed(operator, monkeypatch)
        assert not self.allowed(compiled, monkeypatch)

    def test_no_operator_of_the_user(self, monkeypatch):
        class Own(SpectralOperator):
            pass

        recorder, operator = Recorder(monkeypatch), Own(MLP(3, (8,), 6), MLP(1, (8,), 6), 6)
        train(operator, pairs_of(), None, record=True)
        assert recorder.recorded == 0


class TestNothingWaits:
    """Tensors on the meta device have no values: whatever asks for one raises."""

    @pytest.mark.parametrize("loss", [name for name in LOSSES if name not in WAITING])
    @pytest.mark.parametrize("gate", [True, False])
    def test_the_objective_asks_the_device_for_nothing(self, loss, gate, monkeypatch):
        found = {}
        monkeypatch.setattr("ncprob.training.minimize", lambda model, objective, *_, **__: found.update(f=objective))
        operator = operator_of(gate=gate).to("meta")
        monkeypatch.setattr(SpectralOperator, "postprocess", lambda *_, **__: None)
        train_operator(
            operator, pairs_of(device=torch.device("meta")), loss=loss, gamma=1e-3, gate_strength=0.03,
            validation_pairs=None, schedule=Schedule(), runtime=Runtime(),
        )  # fmt: skip
        x, y = torch.empty(64, 3, device="meta"), torch.empty(64, 1, device="meta")
        found["f"](x, y).backward()
        with pytest.raises((RuntimeError, NotImplementedError)):  # so would a question be
            float(operator.log_values_root.detach().sum())

    def test_row_numbers_move_once_an_epoch(self, monkeypatch):
        moved, move = [], torch.Tensor.to

        def to(tensor, *args, **kwargs):
            moved.append(len(tensor))
            return move(tensor, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, "to", to)
        batches = index_batches(100, 10, seed=0, start=0, device=torch.device("cpu"))
        first = [next(batches) for _ in range(20)]
        assert moved == [100, 100]
        assert torch.equal(torch.cat(first[:10]).sort().values, torch.arange(100))

    def test_pairs_in_two_places_are_still_given(self):
        pairs = TensorPairs(torch.arange(8.0)[:, None], torch.empty(8, 1, device="meta"))
        x, y = next(pairs.batches(4, seed=0))
        assert (len(x), y.device.type) == (4, "meta")
        assert pairs._device() is None  # row numbers on the CPU serve both
        assert TensorPairs(x, x)._device() == torch.device("cpu")


@needs_cuda
class TestOnAnAccelerator:
    def test_no_step_waits(self, monkeypatch):
        advance = optimization._Run.advance

        def watched(*arguments):
            torch.cuda.set_sync_debug_mode("error")
            try:
                advance(*arguments)
            finally:
                torch.cuda.set_sync_debug_mode("default")

        monkeypatch.setattr(optimization._Run, "advance", watched)
        device = torch.device("cuda")
        train(operator_of().to(device), pairs_of(device=device), pairs_of(100, 3, device), record=False)

    @pytest.mark.parametrize("record", [True, False])
    def test_the_result_is_that_of_the_cpu(self, record):
        device = torch.device("cuda")
        expected = train(plain := operator_of(), pairs_of(), pairs_of(100, seed=3), record=False)
        history = train(there := operator_of().to(device), pairs_of(device=device), pairs_of(100, 3, device), record)
        # Forty steps let the rounding of float32, 1e-7, grow; 1e-3 is far below what another batch would change.
        assert history.validation_loss == pytest.approx(expected.validation_loss, rel=1e-3)
        for name, value in weights_of(plain).items():
            torch.testing.assert_close(there.state_dict()[name].cpu(), value, rtol=1e-2, atol=1e-3)

    @pytest.mark.parametrize("loss", LOSSES)
    def test_every_loss_trains_without_a_warning(self, loss, recwarn):
        device = torch.device("cuda")
        stream = torch.cuda.current_stream()
        train(operator_of().to(device), pairs_of(device=device), None, record=True, loss=loss)
        assert not [each for each in recwarn if "recorded" in str(each.message)]
        assert torch.cuda.current_stream() == stream

    def test_threads_train_what_one_after_the_other_does(self):
        device = torch.device("cuda")
        data, held = pairs_of(device=device), pairs_of(100, 3, device)

        expected = train(operator_of().to(device), data, held, record=True).validation_loss
        operators = [operator_of().to(device) for _ in range(4)]  # torch has one generator for all threads
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda operator: train(operator, data, held, True).validation_loss, operators))
        for losses in found:
            assert losses == pytest.approx(expected, rel=1e-3)
