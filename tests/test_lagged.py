"""Time-lagged pairs: what is paired, what is split, and what is refused."""

import itertools
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ncprob
from ncprob import NCPRegressor, TimeLaggedPairs
from ncprob.pairs import IndexedPairs, as_pairs
from ncprob.trajectory_files import FileReader
from tests.helpers import small_operator

lengths = st.lists(st.integers(12, 60), min_size=1, max_size=4)
lags, pasts = st.integers(1, 5), st.integers(0, 3)


def numbered(sizes):
    """Trajectories whose frames say where they are: (trajectory, frame)."""
    return [np.column_stack([np.full(n, i), np.arange(n)]).astype(float) for i, n in enumerate(sizes)]


@settings(max_examples=50, deadline=None)
@given(sizes=lengths, lag=lags, n_past=pasts)
def test_all_pairs_within_a_trajectory_and_no_other(sizes, lag, n_past):
    X, y = TimeLaggedPairs(numbered(sizes), lag, n_past=n_past).arrays()
    expected = [(i, t) for i, n in enumerate(sizes) for t in range(n_past, n - lag)]
    assert X.shape == (len(expected), 2 * (n_past + 1))
    for j in range(n_past + 1):
        np.testing.assert_array_equal(X[:, 2 * j : 2 * j + 2], [(i, t - j) for i, t in expected])
    np.testing.assert_array_equal(y, [(i, t + lag) for i, t in expected])


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(st.integers(100, 200), min_size=1, max_size=3), lag=lags, n_past=pasts, extra=st.integers(0, 4))
def test_blocks_are_in_order_and_at_least_the_gap_apart(sizes, lag, n_past, extra):
    parts = TimeLaggedPairs(numbered(sizes), lag, n_past=n_past).split((0.6, 0.2, 0.2), gap=lag + extra)
    for i in range(len(sizes)):
        touched = []
        for part in parts:
            X, y = part.arrays()
            mine = X[:, 0] == i
            touched.append((X[mine, -1].min(), y[mine, 1].max()))
        for before, after in itertools.pairwise(touched):
            assert after[0] - before[1] > lag + extra  # at least `gap` frames between the last and the first one
        assert touched[0][0] == 0
        assert touched[-1][1] == sizes[i] - 1


def test_whole_trajectories_go_to_blocks():
    parts = TimeLaggedPairs(numbered([30] * 10), 2).split((0.6, 0.2, 0.2), whole_trajectories=True)
    assert [part.trajectory().unique().tolist() for part in parts] == [[0, 1, 2, 3, 4, 5], [6, 7], [8, 9]]
    assert [len(part) for part in parts] == [6 * 28, 2 * 28, 2 * 28]


def test_a_block_can_be_split_again():
    train, _ = TimeLaggedPairs(np.arange(100.0), 2).split((0.5, 0.5))
    first, second = train.split((0.5, 0.5))
    assert first.arrays()[1].max() == 24
    assert second.arrays()[0].min() == 27
    assert second.arrays()[1].max() == train.arrays()[1].max()


def test_blocks_for_resampling_do_not_cross_borders():
    pairs = TimeLaggedPairs(numbered([10, 7, 12]), 2)
    blocks, trajectory = pairs.blocks(3), pairs.trajectory()
    for block in blocks.unique():
        assert len(trajectory[blocks == block].unique()) == 1
        assert (blocks == block).sum() <= 3
    assert blocks.tolist() == sorted(blocks.tolist())
    np.testing.assert_array_equal(pairs.time()[trajectory == 1], np.arange(5))


def test_frames_are_not_copied():
    frames = np.zeros((1000, 4, 3), dtype=np.float32)
    pairs = TimeLaggedPairs(frames, 3)
    frames[0] = 7.0
    assert float(pairs.tensors()[0][0].mean()) == 7.0
    assert all(part._frames is pairs._frames for part in pairs.split())


def test_batches_are_pairs_repeat_and_cover_an_epoch():
    pairs = TimeLaggedPairs(np.arange(65.0), 1)
    stream = pairs.batches(16, seed=3)
    epoch = [next(stream) for _ in range(4)]
    x = torch.cat([x for x, _ in epoch])
    assert x.dtype == torch.float32
    assert sorted(x[:, 0].tolist()) == list(range(64))
    assert all(torch.equal(y, x + 1) for x, y in epoch)
    assert torch.equal(next(pairs.batches(16, seed=3, start=2))[0], epoch[2][0])
    assert sum(len(x) for x, _, _ in pairs.chunks(10)) == 64


def test_training_takes_them_as_it_takes_tensors():
    """The same batches, so the same weights to the last bit."""
    series = np.random.default_rng(0).normal(size=300).astype(np.float32)
    pairs = TimeLaggedPairs(series, 2)
    first, second = small_operator(seed=1), small_operator(seed=1)
    train, held, _ = pairs.split((0.7, 0.2, 0.1))
    settings = {"max_steps": 6, "batch_size": 64, "validate_every": 3, "device": "cpu", "progress": False}
    history = ncprob.train(first, train, validation_pairs=held, **settings)
    ncprob.train(second, train.tensors(), validation_pairs=held.tensors(), **settings)
    assert history.step == [3, 6]
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    first.postprocess(train)
    second.postprocess(train.tensors())
    assert torch.equal(first.singular_values, second.singular_values)


def test_a_run_goes_on_from_its_checkpoint_only_with_the_same_pairs(tmp_path):
    pairs = TimeLaggedPairs(np.random.default_rng(0).normal(size=100), 1)
    same, other_lag = TimeLaggedPairs(pairs._frames, 1), TimeLaggedPairs(pairs._frames, 2)
    assert pairs.fingerprint() == same.fingerprint()
    assert len({pairs.fingerprint(), other_lag.fingerprint(), pairs.split()[0].fingerprint()}) == 3
    assert as_pairs(pairs, torch.device("cpu")) is not pairs


@pytest.mark.parametrize("library", [pd, pl])
def test_data_frames_in_and_out(library):
    table = library.DataFrame({"a": [1.0, 2.0, 3.0, 4.0, 5.0], "b": [0, 1, 0, 1, 0]})
    pairs = TimeLaggedPairs([table, table], 1, inputs=["a", "b"], targets="a", n_past=1)
    X, y = pairs.arrays()
    assert isinstance(X, library.DataFrame)
    assert list(X.columns) == ["a", "b", "a[t-1]", "b[t-1]"]
    np.testing.assert_array_equal(X.to_numpy(), np.tile([[2, 1, 1, 0], [3, 0, 2, 1], [4, 1, 3, 0]], (2, 1)))
    assert isinstance(y, library.Series)
    assert y.name == "a"
    assert y.to_list() == [3, 4, 5] * 2
    both = TimeLaggedPairs(table, 2).arrays()[1]
    assert list(both.columns) == ["a", "b"]


def test_pandas_keeps_time_stamps():
    days = pd.date_range("2024-01-01", periods=6, freq="D")
    X, y = TimeLaggedPairs(pd.DataFrame({"a": np.arange(6.0)}, index=days), 2, n_past=1).arrays()
    assert X.index.equals(days[1:4])
    assert y.index.equals(days[1:4])  # when the forecast is made, so that rows of X, y and predictions align


def test_columns_of_arrays_are_chosen_by_position():
    X, y = TimeLaggedPairs(numbered([9]), 2, inputs=1, targets=[1]).arrays()
    np.testing.assert_array_equal(X[:, 0], np.arange(7))
    np.testing.assert_array_equal(y, np.arange(2, 9))


def test_estimators_take_blocks():
    series = pd.DataFrame({"load": np.sin(np.arange(400) / 10) + np.random.default_rng(0).normal(0, 0.1, 400)})
    train, validation, test = TimeLaggedPairs(series, 3, n_past=1).split((0.6, 0.2, 0.2))
    model = NCPRegressor(max_steps=40, coordinates="raw", random_state=0)
    model.fit(*train.arrays(), validation_data=validation.arrays())
    X, y = test.arrays()
    quantiles = model.predict_quantiles(X, alpha=(0.1, 0.9))
    assert list(quantiles.columns) == [("load", 0.1), ("load", 0.9)]
    assert len(quantiles) == len(y)


def test_frames_of_molecules_keep_their_shape():
    x, y = TimeLaggedPairs([torch.randn(9, 4, 3), torch.randn(7, 4, 3)], 2).tensors()
    assert x.shape == y.shape == (12, 4, 3)
    assert TimeLaggedPairs(torch.randn(9, 4, 3), 2, n_past=2).tensors()[0].shape == (5, 3, 4, 3)


def with_nan():
    first, second = numbered([20, 30])
    second[17, 1] = np.nan
    return [first, second]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: TimeLaggedPairs(np.zeros(5), 5), ValueError, "`lag` = 5 .* trajectory 0 has only 5 frames"),
        (lambda: TimeLaggedPairs([np.zeros(9), np.zeros(3)], 4), ValueError, "trajectory 1 has only 3 frames"),
        (lambda: TimeLaggedPairs(np.zeros(9), 4, n_past=5), ValueError, "`n_past` = 5 must leave at least one pair"),
        (lambda: TimeLaggedPairs(np.zeros(5), 0), ValueError, "`lag` must be at least 1"),
        (lambda: TimeLaggedPairs(np.zeros(5), 1.5), TypeError, "`lag` must be an integer"),
        (lambda: TimeLaggedPairs(np.zeros(5), True), TypeError, "`lag` must be an integer"),
        (lambda: TimeLaggedPairs(np.zeros(5), 1, n_past=-1), ValueError, "`n_past` must be at least 0"),
        (lambda: TimeLaggedPairs(with_nan(), 1), ValueError, "NaN or infinity; trajectory 1 does at frame 17"),
        (
            lambda: TimeLaggedPairs([np.zeros((9, 4, 3)), np.zeros((9, 5, 3))], 1),
            ValueError,
            r"trajectory 1 has \(5, 3\), the first has \(4, 3\)",
        ),
        (lambda: TimeLaggedPairs([], 1), ValueError, "at least one trajectory"),
        (lambda: TimeLaggedPairs([1.0, 2.0, 3.0], 1), TypeError, "list of numbers"),
        (lambda: TimeLaggedPairs(np.array(["a", "b", "c"]), 1), TypeError, "must hold real numbers"),
        (lambda: TimeLaggedPairs(numbered([9]), 1, inputs="load"), ValueError, "`inputs` must be columns among"),
        (lambda: TimeLaggedPairs(np.zeros((9, 4, 3)), 1, targets=0), ValueError, "`targets` chooses columns of tables"),
        (
            lambda: TimeLaggedPairs(pd.DataFrame({"a": [1.0, 2.0, 3.0], "day": ["m", "t", "w"]}), 1),
            TypeError,
            r"columns of numbers; trajectory 0 has others in \['day'\]",
        ),
        (
            lambda: TimeLaggedPairs([pd.DataFrame({"a": [1.0, 2, 3]}), pd.DataFrame({"b": [1.0, 2, 3]})], 1),
            ValueError,
            "the same columns; trajectory 1",
        ),
        (lambda: TimeLaggedPairs(np.zeros(50), 5).split(gap=4), ValueError, "`gap` must be at least the lag, 5"),
        (lambda: TimeLaggedPairs(np.zeros(50), 5).split((0.9, 0.2)), ValueError, "`fractions` must add to at most 1"),
        (lambda: TimeLaggedPairs(np.zeros(50), 5).split((0.9, 0.1)), ValueError, "block 1 has none"),
        (
            lambda: TimeLaggedPairs(np.zeros(50), 5).split((0.5, 0.5), whole_trajectories=True),
            ValueError,
            "at least one trajectory in every block; block 0",
        ),
        (lambda: TimeLaggedPairs.from_files([], 1), (ValueError, ImportError), "at least one file|mdtraj"),
        (lambda: TimeLaggedPairs(np.zeros(50), 5).split(0.8), TypeError, r"Write 0.8 as \(0.8, 0.2\)"),
        (lambda: TimeLaggedPairs(np.zeros((50, 0)), 5), ValueError, r"at least one column; trajectory 0 .* \(0,\)"),
        (lambda: TimeLaggedPairs(np.zeros((50, 0, 3)), 5), ValueError, "at least one column"),
        (
            lambda: TimeLaggedPairs([pd.DataFrame({"a": [1.0, 2, 3]}), np.zeros((9, 1))], 1),
            TypeError,
            "all data frames or all arrays; got both",
        ),
        (
            lambda: TimeLaggedPairs([np.zeros((9, 1)), pd.DataFrame({"a": [1.0, 2, 3]})], 1),
            TypeError,
            "all data frames or all arrays; got both",
        ),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_columns_that_float32_cannot_resolve_are_warned_of():
    z = np.random.default_rng(0).normal(size=(100, 2))
    z[:, 1] += 1e9  # steps of float32 are 64 there
    pairs = TimeLaggedPairs(z, 1)
    with pytest.warns(UserWarning, match=r"column 1 of `trajectories` varies by .* around 1e\+09, which float32"):
        next(pairs.batches(8, seed=0))
    named = TimeLaggedPairs(pd.DataFrame(z, columns=["near", "far"]), 1)
    with pytest.warns(UserWarning, match="column 'far'"):
        named.tensors()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(pairs.split((0.5, 0.5))[0].chunks(8))  # said once
        np.testing.assert_array_equal(TimeLaggedPairs(z, 1).arrays()[1], z[1:])  # estimators get all digits
        next(TimeLaggedPairs(z[:, 0] + 1000.0, 1).chunks(8))
        next(TimeLaggedPairs(np.full(9, 1e9), 1).chunks(8))  # a constant loses nothing


@pytest.mark.parametrize("kind", [">f8", "longdouble", ">f4", "float16"])
def test_digits_are_kept(kind):
    fine = 1e-12 if np.dtype(kind).itemsize > 4 else 0.0
    z = (1 + np.arange(9.0) / 512 + fine).astype(kind)  # nine binary digits, which half precision has
    found = TimeLaggedPairs(z, 1).arrays()[0][:, 0]
    np.testing.assert_array_equal(found, z[:-1].astype(np.float64))
    assert found.dtype == (np.float64 if np.dtype(kind).itemsize > 4 else np.float32)


def test_brain_floats():
    assert TimeLaggedPairs(torch.arange(9).bfloat16(), 1).arrays()[1].tolist() == list(range(1, 9))


def test_files_without_mdtraj(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mdtraj", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"needs mdtraj. Install it with: pip install 'ncprob\[md\]'"):
        TimeLaggedPairs.from_files(tmp_path / "run.dcd", 1, topology=tmp_path / "top.pdb")


class TestFiles:
    """Files written by mdtraj are read back."""

    @pytest.fixture
    def molecule(self, tmp_path):
        mdtraj = pytest.importorskip("mdtraj", reason="mdtraj is an optional extra")
        topology = mdtraj.Topology()
        chain = topology.add_chain()
        for _ in range(4):
            residue = topology.add_residue("ALA", chain)
            topology.add_atom("CA", mdtraj.element.carbon, residue)
            topology.add_atom("N", mdtraj.element.nitrogen, residue)

        def write(name, n_frames, n_atoms=8):
            xyz = np.random.default_rng(n_frames).normal(size=(n_frames, n_atoms, 3)).astype(np.float32)
            mdtraj.Trajectory(xyz, topology.subset(range(n_atoms))).save(str(tmp_path / name))
            return tmp_path / name, xyz

        write("top.pdb", 1)
        return write, tmp_path / "top.pdb"

    # PDB keeps three digits of an angstrom, XTC three of a nanometre
    @pytest.mark.parametrize(("kind", "error"), [("dcd", 1e-6), ("trr", 1e-6), ("xtc", 6e-4), ("pdb", 6e-5)])
    @pytest.mark.parametrize("stride", [1, 3])
    def test_frames_come_back(self, molecule, kind, error, stride):
        write, topology = molecule
        (first, a), (second, b) = write(f"a.{kind}", 41), write(f"b.{kind}", 30)
        pairs = TimeLaggedPairs.from_files(
            [first, second], 2, topology=topology, atoms="name CA", stride=stride, chunk_size=7
        )
        expected = [z[::stride, ::2] for z in (a, b)]
        x, y = pairs.tensors()
        np.testing.assert_allclose(x, np.concatenate([z[:-2] for z in expected]), atol=error)
        np.testing.assert_allclose(y, np.concatenate([z[2:] for z in expected]), atol=error)

    def test_features_instead_of_positions(self, molecule):
        write, topology = molecule
        path, xyz = write("a.dcd", 20)
        distance = lambda part: np.linalg.norm(part.xyz[:, 0] - part.xyz[:, 3], axis=1)  # noqa: E731
        pairs = TimeLaggedPairs.from_files(path, 1, topology=topology, transform=distance, chunk_size=6)
        expected = np.linalg.norm(xyz[:, 0] - xyz[:, 3], axis=1)
        np.testing.assert_allclose(pairs.tensors()[1][:, 0], expected[1:], rtol=1e-5)

    @pytest.mark.parametrize("kind", ["dcd", "xtc", "trr"])
    @pytest.mark.parametrize("kept", [0.51, 0.99])
    def test_files_that_are_cut_off(self, molecule, kind, kept):
        write, topology = molecule
        path, _ = write(f"cut.{kind}", 40)
        data = path.read_bytes()
        path.write_bytes(data[: int(kept * len(data))])
        with pytest.raises(ValueError, match=f"cut.{kind}.*(not whole|is whole)"):
            TimeLaggedPairs.from_files(path, 1, topology=topology)

    def test_frames_that_do_not_arrive(self, molecule, monkeypatch):
        write, topology = molecule
        path, _ = write("a.dcd", 40)
        monkeypatch.setattr(FileReader, "_count", lambda self, path: 41)
        with pytest.raises(ValueError, match=r"a.dcd' must hold 41 frames, as it says itself; 40 could be read"):
            TimeLaggedPairs.from_files(path, 1, topology=topology)

    def test_hdf5_needs_no_topology(self, molecule):
        pytest.importorskip("tables", reason="mdtraj reads .h5 with PyTables")
        path, xyz = molecule[0]("a.h5", 20)
        x, _ = TimeLaggedPairs.from_files(path, 1, atoms=[0, 2], chunk_size=7).tensors()
        np.testing.assert_allclose(x, xyz[:-1, [0, 2]], atol=1e-6)

    @pytest.mark.parametrize("atoms", [[], [8], [-1], [True] * 8, [0.5], [[0, 1]], [2, 0], [1, 1]])
    def test_wrong_atoms(self, molecule, atoms):
        write, topology = molecule
        path, _ = write("a.dcd", 20)
        with pytest.raises(ValueError, match=r"`atoms` must be a selection .* numbers from 0 to 7"):
            TimeLaggedPairs.from_files(path, 1, topology=topology, atoms=atoms)

    def test_wrong_topology_and_extension(self, molecule, tmp_path):
        path, _ = molecule[0]("a.dcd", 20)
        (tmp_path / "notes.txt").write_text("no atoms")
        with pytest.raises(FileNotFoundError, match=r"`topology` must be a file; there is no .*none.pdb"):
            TimeLaggedPairs.from_files(path, 1, topology=tmp_path / "none.pdb")
        with pytest.raises(ValueError, match=r"`topology` must be a file with the names of the atoms; .*notes.txt"):
            TimeLaggedPairs.from_files(path, 1, topology=tmp_path / "notes.txt")
        with pytest.raises(ValueError, match=r"`paths` must be trajectory files that mdtraj reads; .*notes.txt"):
            TimeLaggedPairs.from_files(tmp_path / "notes.txt", 1, topology=molecule[1])

    def test_bad_files(self, molecule, tmp_path):
        write, topology = molecule
        path, _ = write("a.dcd", 20)
        other, _ = write("b.dcd", 20, n_atoms=6)
        for call, error, message in [
            (
                lambda: TimeLaggedPairs.from_files(tmp_path / "no.dcd", 1, topology=topology),
                FileNotFoundError,
                "no.dcd",
            ),
            (lambda: TimeLaggedPairs.from_files(path, 1), ValueError, "`topology` must be given"),
            (lambda: TimeLaggedPairs.from_files([path, other], 1, topology=topology), ValueError, "b.dcd.*could not"),
            (
                lambda: TimeLaggedPairs.from_files(path, 1, topology=topology, atoms="name ZZ"),
                ValueError,
                "`atoms` must",
            ),
            (lambda: TimeLaggedPairs.from_files(path, 20, topology=topology), ValueError, "a.dcd' has only 20 frames"),
            (
                lambda: TimeLaggedPairs.from_files(path, 1, topology=topology, transform=lambda part: part.xyz[:1]),
                ValueError,
                "`transform` must give one row per frame",
            ),
        ]:
            with pytest.raises(error, match=message):
                call()


def test_several_processes_can_share_a_batch():
    pairs = TimeLaggedPairs([np.arange(5.0), np.arange(100.0, 104.0)], lag=2)
    assert isinstance(pairs, IndexedPairs)
    x, y = pairs.rows(torch.tensor([3, 1]))
    assert (x[:, 0].tolist(), y[:, 0].tolist()) == ([100.0, 1.0], [102.0, 3.0])
