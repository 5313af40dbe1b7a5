"""The experiment on molecules: structures, models, scores and baselines on small cases with known answers."""

import csv
import dataclasses
import json
import struct
import sys

import numpy as np
import pytest
import torch

from benchmarks.molecules import alanine, analysis, experiment, frames, go_model, report, simulate, structure
from benchmarks.molecules.__main__ import main
from benchmarks.molecules.analysis import Forecast, Truth
from benchmarks.molecules.experiment import Outcome, Settings
from benchmarks.molecules.frames import Frames
from benchmarks.molecules.structure import Contacts, Structure
from ncprob import SpectralOperator

LEVEL, STRANDS = 0.5, 5  # nm between two strands of five beads


def hairpin(opening):
    """Ten beads in two strands, (frames, 10, 3): `opening` moves the strands apart."""
    opening = np.atleast_1d(opening)
    beads = np.zeros((len(opening), 10, 3))
    beads[:, :STRANDS, 0] = 0.35 * np.arange(STRANDS)
    beads[:, STRANDS:, 0] = 0.35 * np.arange(STRANDS)[::-1]
    beads[:, STRANDS:, 1] = LEVEL + opening[:, None]
    return beads


NATIVE = hairpin(0.0)[0]
PAIRS = np.array([(i, 9 - i) for i in range(4)])
CONTACTS = Contacts(PAIRS, np.array([1, 2, 3, 4]), np.full(4, LEVEL))


def folding(n, seed, stay=(0.95, 0.9)):
    """A two-state chain in steps of 2 ps, 0 unfolded and 1 folded, that stays with `stay`, seen through a hairpin."""
    rng = np.random.default_rng(seed)
    state, draws = np.ones(n, int), rng.random(n)
    for t in range(1, n):
        state[t] = state[t - 1] if draws[t] < stay[state[t - 1]] else 1 - state[t - 1]
    beads = hairpin(np.where(state == 1, 0.0, 1.0)) + 0.02 * rng.standard_normal((n, 10, 3))
    bonds = np.array([(i, i + 1) for i in range(9)])
    return Frames(beads.astype(np.float32), np.array(["CA"] * 10), np.arange(10), bonds, 2.0, CONTACTS), state


# ---------------------------------------------------------------- structures

PDB = """\
ATOM      1  N   TYR A   1      25.824  21.671  10.238  1.00 12.00           N
ATOM      2  CA ATYR A   1      24.935  20.652  10.774  1.00 12.00           C
ATOM      3  CA BTYR A   1      99.000  20.652  10.774  1.00 12.00           C
ATOM      4  HA  TYR A   1      24.000  20.000  10.000  1.00 12.00           H
HETATM    5  O   HOH A 101      24.000  20.000  10.000  1.00 12.00           O
ATOM      6  CA  ASP A   3      18.477  20.539  10.432  1.00 12.00           C
ENDMDL
ATOM      7  CA  ASP A   4      18.477  20.539  10.432  1.00 12.00           C
"""


def test_pdb_gives_heavy_atoms_of_the_first_model(tmp_path):
    (tmp_path / "a.pdb").write_text(PDB)
    found = structure.read_pdb(tmp_path / "a.pdb")
    assert found.names == ("N", "CA", "CA")
    assert found.residue_names == ("TYR", "TYR", "ASP")
    assert found.residues.tolist() == [0, 0, 1]
    np.testing.assert_allclose(found.positions[1], [2.4935, 2.0652, 1.0774])
    assert found.elements == ("N", "C", "C")
    assert found.index(1, "CA") == 2


def test_contacts_need_close_atoms_of_distant_residues():
    beads = Structure(("CA",) * 10, ("ALA",) * 10, np.arange(10), NATIVE * 0.8)
    found = structure.native_contacts(beads)  # strands 4 Å apart; neighbours along a strand are too close in the chain
    assert [tuple(pair) for pair in found.pairs] == [(0, 9), (1, 8), (2, 7), (3, 6)]
    assert found.counts.tolist() == [1, 1, 1, 1]
    np.testing.assert_allclose(found.distances, 0.4)


def test_a_structure_without_contacts_is_no_native_one():
    beads = Structure(("CA",) * 10, ("ALA",) * 10, np.arange(10), NATIVE * 3)
    with pytest.raises(ValueError, match="must have residues in contact"):
        structure.native_contacts(beads)


def test_fraction_native_counts_atom_contacts():
    beads = hairpin([0.0, 1.0, 0.0])
    beads[2, 0, 1] -= 1.0  # the first contact, one of ten atom contacts, is open
    np.testing.assert_allclose(structure.fraction_native(beads, CONTACTS), [1.0, 0.0, 0.9], atol=0.01)


def test_events_are_passages_from_one_side_to_the_other():
    assert structure.events(np.array([0.9, 0.4, 0.7, 0.1, 0.3, 0.1, 0.5, 0.8, 0.15])) == (1, 2)


# ---------------------------------------------------------------- models


def test_angles_of_known_shapes():
    square = np.array([[1.0, 0, 0], [0, 0, 0], [0, 1.0, 0], [0, 1.0, 1.0]])
    assert go_model.bend(square, (0, 1, 2)) == pytest.approx(np.pi / 2)
    assert abs(go_model.torsion(square, (0, 1, 2, 3))) == pytest.approx(np.pi / 2)
    flat = np.array([[1.0, 0, 0], [0, 0, 0], [0, 1.0, 0], [-1.0, 1.0, 0]])
    assert abs(go_model.torsion(flat, (0, 1, 2, 3))) == pytest.approx(np.pi)


def test_atoms_are_placed_where_their_internal_coordinates_say():
    x = []
    for _, _, place in alanine.GEOMETRY:
        x.append(alanine._placed(x, place))
    x = np.array(x)
    for atom, (_, _, place) in enumerate(alanine.GEOMETRY):
        if place is not None and len(place) == 6:
            length, c, angle, b, torsion, a = place
            assert np.linalg.norm(x[atom] - x[c]) == pytest.approx(length)
            assert np.degrees(go_model.bend(x, (atom, c, b))) == pytest.approx(angle)
            found = np.degrees(go_model.torsion(x, (a, b, c, atom)))
            assert (found - torsion + 180) % 360 - 180 == pytest.approx(0, abs=1e-6)


def backbone_of_three():
    """Three residues with made-up coordinates."""
    positions = np.random.default_rng(0).standard_normal((12, 3))
    return Structure(structure.BACKBONE * 3, ("ALA",) * 12, np.repeat(np.arange(3), 4), positions)


def test_bonds_of_a_backbone():
    bonds, improper = go_model._backbone(backbone_of_three())
    assert bonds[:4] == ((0, 1), (1, 2), (2, 3), (2, 4))
    assert len(bonds) == 3 * 3 + 2
    assert improper == ((1, 4, 2, 3), (5, 8, 6, 7))
    chains = go_model._paths(bonds, 4)
    planar = [path for path in chains if go_model._is_planar(backbone_of_three(), path)]
    assert (1, 2, 4, 5) in planar
    assert (0, 1, 2, 4) in set(chains) - set(planar)


@pytest.fixture
def native_file(tmp_path):
    """A PDB file of the hairpin with backbone atoms, made so that bonds have sensible lengths."""
    lines = []
    for residue, centre in enumerate(NATIVE * 8):
        for name, shift in zip(
            structure.BACKBONE, [(-1.2, 0, 0.8), (0, 0, 0), (1.2, 0, 0.8), (1.2, 0, 2.0)], strict=True
        ):
            x, y, z = centre + np.array(shift) + [0, 0, residue % 2]  # a straight chain has no torsions
            place = f"{x:8.3f}{y:8.3f}{z:8.3f}"
            lines.append(f"ATOM  {len(lines) + 1:5d}  {name:<3} ALA A{residue + 1:4d}    {place}  1.00  0.00")
    path = tmp_path / "native.pdb"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(("kind", "atoms"), [("backbone", 40), ("calpha", 10)])
def test_forces_and_resumed_runs(kind, atoms, native_file, tmp_path, monkeypatch):
    openmm = pytest.importorskip("openmm", reason="simulations need the extra md")
    model = go_model.go_model(structure.read_pdb(native_file), kind)
    assert len(model.masses) == atoms
    assert model.contact_weights.mean() == pytest.approx(1)
    context = openmm.Context(
        go_model.build_system(model, go_model.STRENGTH[kind]),
        openmm.VerletIntegrator(0.001),
        openmm.Platform.getPlatformByName("Reference"),
    )
    context.setPositions(model.structure.positions)
    native = context.getState(energy=True).getPotentialEnergy()._value
    # All but the repulsion is at its minimum: the contacts have their whole depth and the rest is not negative.
    assert native >= -go_model.STRENGTH[kind] * len(model.contacts) - 1e-6
    monkeypatch.setattr(simulate, "PART", 5)
    for folder, lengths in (("one", (0.04,)), ("two", (0.02, 0.04))):
        for ns in lengths:
            last = simulate.simulate(simulate.Run(kind, ns, 3), tmp_path / folder, native_file, progress=False)
        assert last.name == f"{kind}-3.dcd"
    one, two = ((tmp_path / folder / f"{kind}-3.dcd").read_bytes() for folder in ("one", "two"))
    assert one[simulate.DCD_HEADER :] == two[simulate.DCD_HEADER :]
    before = {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}
    other = tmp_path / "other.pdb"
    other.write_text(native_file.read_text().replace("ALA", "GLY"))
    for changed, pdb, message in [
        (simulate.Run(kind, 0.05, 3, strength=1.0), native_file, "belongs to another simulation"),
        (simulate.Run(kind, 0.05, 3, interval=1.0), native_file, "belongs to another simulation"),
        (simulate.Run(kind, 0.05, 3), other, "belongs to another simulation"),
        (simulate.Run(kind, 0.03, 3), native_file, "--ns must be at least 0.04"),
    ]:
        with pytest.raises(ValueError, match=message):
            simulate.simulate(changed, tmp_path / "two", pdb, progress=False)
    assert {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()} == before


def test_frames_know_their_interval_and_structure(native_file, tmp_path):
    native = structure.read_pdb(native_file)
    path = tmp_path / "a.dcd"
    with pytest.raises(ValueError, match=r"no .*a\.json to say how far apart"):
        frames._checked_interval(path, None, native)
    assert frames._checked_interval(path, 3.0, native) == 3.0
    path.with_suffix(".json").write_text(json.dumps({"interval": 1.5, "native": native.fingerprint()}))
    assert frames._checked_interval(path, None, native) == 1.5
    with pytest.raises(ValueError, match=r"--interval must be 1\.5 ps"):
        frames._checked_interval(path, 2.0, native)
    moved = Structure(native.names, native.residue_names, native.residues, native.positions + 1e-9)
    with pytest.raises(ValueError, match="from another native structure"):
        frames._checked_interval(path, None, moved)


def test_simulated_frames_are_read_back(native_file, tmp_path, monkeypatch):
    pytest.importorskip("openmm", reason="simulations need the extra md")
    pytest.importorskip("mdtraj", reason="trajectory files need the extra md")
    path = simulate.simulate(simulate.Run("calpha", 0.02, 0, interval=1.0), tmp_path, native_file, progress=False)
    found = frames.load(path, pdb=native_file)
    assert found.interval == 1.0
    assert found.lag == 20
    assert found.positions.shape == (20, 10, 3)


def test_a_trajectory_ahead_of_its_checkpoint_is_cut(tmp_path):
    path = tmp_path / "a.dcd"
    path.write_bytes(bytes(simulate.DCD_HEADER) + bytes(3 * (4 * 7 + 8)) * 5 + b"half")
    simulate.cut_dcd(path, n_frames=4, n_atoms=7, steps_per_frame=100)
    kept = path.read_bytes()
    assert len(kept) == simulate.DCD_HEADER + 4 * 3 * (4 * 7 + 8)
    assert [struct.unpack("<i", kept[at : at + 4])[0] for at in simulate.DCD_COUNTS] == [4, 400]
    with pytest.raises(ValueError, match="it is shorter"):
        simulate.cut_dcd(path, n_frames=9, n_atoms=7, steps_per_frame=100)


# ---------------------------------------------------------------- scores and baselines


def test_mean_and_error_of_independent_rows():
    """Without correlation the block bootstrap gives √(p(1 − p)/n) = 0.0072, itself known to 1/√(2·200 blocks) = 5 %."""
    values = np.random.default_rng(0).random(4000) < 0.3
    mean, error = analysis.mean_of(values, np.ones(4000, bool), block=20)
    assert mean == values.mean()
    assert error == pytest.approx(np.sqrt(0.21 / 4000), rel=0.2)


@pytest.mark.filterwarnings("ignore:sampling errors come from only 4 blocks")
def test_scores_of_a_known_forecast():
    test = Truth(np.array([0, 0, 1, 1], bool), np.array([0, 1, 1, 1], bool), np.array([1.0, 2.0, 3.0, 4.0]), 1)
    forecast = Forecast(np.array([0.2, 0.4, 0.9, 0.7]), None, np.array([0.5, 2.5, 2.0, 4.0]), np.full(4, 4.0))
    scores = analysis.judged(forecast, test)
    assert scores["p_fold_unfolded"] == pytest.approx(0.3)
    assert scores["p_fold_unfolded_gap"] == pytest.approx(0.3 - 0.5)
    assert scores["p_fold_folded"] == pytest.approx(0.8)
    assert scores["brier"] == pytest.approx((0.04 + 0.36 + 0.01 + 0.09) / 4)
    assert [scores[f"coverage{part}"] for part in ("", "_unfolded", "_folded")] == [0.75, 0.5, 1.0]
    lines = analysis.reliability(forecast, test, n_bins=2)
    assert [(line["n"], line["frequency"]) for line in lines] == [(2, 0.5), (2, 1.0)]


def test_errors_of_differences_are_paired():
    """Equal forecasts differ by nothing for certain, and a constant shift of p − outcome has no error."""
    rng = np.random.default_rng(0)
    after = rng.random(4000) < 0.3
    test = Truth(np.zeros(4000, bool), after, np.zeros(4000), 20)
    same = analysis.brier_beyond(Forecast(np.full(4000, 0.3)), Forecast(np.full(4000, 0.3)), test)
    assert same == {"brier_beyond": 0.0, "brier_beyond_se": 0.0}
    better = analysis.brier_beyond(Forecast(np.full(4000, 0.3)), Forecast(np.full(4000, 0.5)), test)
    # (0.3 − o)² − (0.5 − o)² = −0.16 + 0.4 o: mean −0.04 and error 0.4·√(0.21/4000) = 0.0029, known to 5 %
    assert "p_fold_unfolded_se" not in analysis.judged(Forecast(np.full(4000, 0.3)), test)
    assert better["brier_beyond"] == pytest.approx(-0.16 + 0.4 * after.mean())
    assert better["brier_beyond_se"] == pytest.approx(0.4 * np.sqrt(0.21 / 4000), rel=0.2)
    scores = analysis.judged(Forecast(after + 0.1), dataclasses.replace(test, before=rng.random(4000) < 0.5))
    assert scores["p_fold_folded_gap"] == pytest.approx(0.1)
    assert scores["p_fold_folded_gap_se"] == pytest.approx(0.0, abs=1e-9)
    assert scores["p_fold_folded_se"] == pytest.approx(np.sqrt(0.21 / 2000), rel=0.2)


def test_tica_finds_the_slow_direction():
    """Two autoregressions mixed: a = 0.9 with standard error √((1 − a²)/n) ≈ 0.003 for n = 20,000."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((20_000, 2))
    for t in range(1, len(z)):
        z[t] = [0.9, 0.3] * z[t - 1] + np.sqrt([0.19, 0.91]) * z[t]
    mean, directions, values = analysis.tica(z @ np.array([[1.0, 2.0], [3.0, -1.0]]) + 5.0, lag=1)
    np.testing.assert_allclose(values, [0.9, 0.3], atol=0.02)
    slow = (z @ np.array([[1.0, 2.0], [3.0, -1.0]]) + 5.0 - mean) @ directions[:, 0]
    assert abs(analysis.correlation(slow, z[:, 0])) > 0.999
    assert analysis.timescale(0.5, 20.0) == pytest.approx(20 / np.log(2))
    assert np.isnan(analysis.timescale(-0.1, 20.0))


def test_markov_values_of_a_two_state_chain():
    """The second eigenvalue is stay₀ + stay₁ − 1 = 0.85; its standard error is about √(2·0.1·0.9/20000)·… < 0.01."""
    _, state = folding(20_000, seed=0)
    assert analysis.markov_values(state, 1, 3)[0] == pytest.approx(0.85, abs=0.03)


def test_markov_values_count_both_directions():
    """Round and round in three states: backwards it is as often seen as forwards, so P = ½ off the diagonal."""
    np.testing.assert_allclose(analysis.markov_values(np.arange(3001) % 3, 1, 3), [-0.5, -0.5], atol=1e-6)


def test_what_happened_is_a_lag_after_what_was_seen():
    run, state = folding(50, seed=7)
    truth = Truth.of(run)
    assert truth.before.tolist() == (state[:-10] == 1).tolist()
    assert truth.after.tolist() == (state[10:] == 1).tolist()
    np.testing.assert_array_equal(truth.distance, run.distance[10:])


def test_baselines_count_on_the_training_run():
    train, state = folding(3000, seed=1)
    test, later = folding(500, seed=2)
    lag = train.lag
    assert lag == 10
    assert (train.folded == (state == 1)).all()
    plain = analysis.baselines(train, test)
    after = state[lag:]
    assert plain["marginal"].folded == pytest.approx(np.full(490, after.mean()))
    expected = np.array([after[state[:-lag] == s].mean() for s in (0, 1)])
    assert plain["two-state"].folded == pytest.approx(expected[later[:-lag]])
    assert plain["Q-bins"].low.shape == (490,)
    assert (plain["Q-bins"].low <= plain["Q-bins"].high).all()


def test_references_see_the_two_states():
    """σ₁ over ten steps is 0.85¹⁰ = 0.197; 6,000 frames have some 150 independent pieces, so ± 0.08 is one error."""
    train, _ = folding(6000, seed=3)
    test, _ = folding(6000, seed=4)
    found = analysis.references(train, test)
    assert found["MSM"]["sigma1"] == pytest.approx(0.85**10, abs=0.15)
    assert 0 < found["tICA"]["sigma1_train"] < 0.6
    # A test run with frames five times as far apart has a fifth of the pairs, of the same lag.
    thin = analysis.references(train, test.thinned(5))
    assert thin["tICA"]["sigma1"] == pytest.approx(found["tICA"]["sigma1"], abs=0.1)
    assert thin["tICA"]["sigma1_train"] == found["tICA"]["sigma1_train"]


# ---------------------------------------------------------------- the experiment as a whole


@pytest.fixture(scope="module")
def runs():
    return folding(3000, seed=5, stay=(0.99, 0.98))[0], folding(3000, seed=6, stay=(0.99, 0.98))[0]


@pytest.fixture(scope="module")
def outcome(runs):
    return experiment.run(*runs, Settings("distances", steps=60, batch_size=128, device="cpu", progress=False))


def test_forecasts_of_a_two_state_hairpin(runs, outcome):
    """All that can be known is the state: σ₁ = 0.97¹⁰ = 0.737 and P(folded | folded) = ⅓ + ⅔·0.737 = 0.825."""
    row = outcome.row
    happened = Truth.of(runs[1])
    two_states = analysis.judged(analysis.baselines(*runs)["two-state"], happened)
    assert row["sigma1"] == pytest.approx(0.97**10, abs=0.15)  # some 45 passages in a run of 6 ns
    assert row["brier"] == pytest.approx(two_states["brier"], abs=0.01)
    assert row["p_fold_folded"] == pytest.approx(two_states["p_fold_folded"], abs=0.02)
    assert row["p_fold_unfolded"] == pytest.approx(two_states["p_fold_unfolded"], abs=0.02)
    assert row["coverage"] == pytest.approx(0.8, abs=0.1)
    assert row["steps_per_second"] > 0
    assert row["device"] == "cpu, 1 thread"  # as training chooses for small networks


@pytest.mark.parametrize("name", [name for name in experiment.RECIPES if name != "distances"])
def test_every_encoder_trains(name, runs):
    operator, facts = experiment.trained(runs[0], Settings(name, steps=2, batch_size=16, device="cpu", progress=False))
    assert facts["steps"] == 2
    assert torch.isfinite(experiment.observed(operator, runs[1])).all()


def test_report_writes_tables_and_picture(runs, outcome, tmp_path):
    outcome.save(tmp_path / "forecast-distances.npz")
    again = Outcome.load(tmp_path / "forecast-distances.npz")
    assert again.row == outcome.row
    np.testing.assert_allclose(again.forecast.low, outcome.forecast.low, rtol=1e-6)
    guide, (begin, end), other = tmp_path / "guide.md", report.marks("long"), "\n".join(report.marks("molecules"))
    guide.write_text(f"{other}\nbefore\n{begin}\nold\n{end}\nafter\n")
    where = {"results": tmp_path / "results", "pictures": tmp_path, "guide": guide}
    text = report.write_report(*runs, tmp_path, "long", **where)
    assert "distances" in text
    assert guide.read_text().startswith(f"{other}\nbefore\n{begin}\n| method |")
    assert guide.read_text().endswith(f"|\n{end}\nafter\n")
    assert (tmp_path / "long.png").stat().st_size > 10_000
    with (tmp_path / "results" / "long.csv").open() as file:
        methods = [row["method"] for row in csv.DictReader(file)]
    learned = {"distances", "distances + state"}
    assert {"counting, test run", "tICA", "MSM", "marginal", "two-state", "Q-bins"} | learned <= set(methods)
    np.savez(tmp_path / "old.npz", folded=[0.5])
    with pytest.raises(ValueError, match="written by an older version"):
        Outcome.load(tmp_path / "old.npz")
    dataclasses.replace(outcome, test=outcome.train).save(tmp_path / "forecast-distances.npz")
    with pytest.raises(ValueError, match="The forecast of distances was made from other runs"):
        report.write_report(*runs, tmp_path, "long", **where)
    with pytest.raises(ValueError, match="--name must be one that"):
        report.write_report(*runs, tmp_path, "short", **where)
    with pytest.raises(FileNotFoundError, match="There is no forecast"):
        report.write_report(*runs, tmp_path / "results")


def test_an_encoder_is_kept_for_other_forecasts(runs, tmp_path, capsys):
    """The same forecast again from the files, and a line with the speed; three files in all."""
    for name, run in zip(("train", "test"), runs, strict=True):
        run.save(tmp_path / f"{name}.npz")
    files = ["--train", str(tmp_path / "train.npz"), "--test", str(tmp_path / "test.npz"), "--out", str(tmp_path / "a")]
    short = ["--steps", "3", "--batch-size", "64", "--device", "cpu"]
    assert main(["train", "schnet-calpha", *files, *short]) == 0
    forecast = tmp_path / "a" / "forecast-schnet-calpha.npz"
    first = Outcome.load(forecast)
    assert first.row["steps"] == 3
    forecast.unlink()
    assert main(["forecast", "schnet-calpha", *files]) == 0
    again = Outcome.load(forecast)
    assert again.row == first.row
    np.testing.assert_array_equal(again.forecast.folded, first.forecast.folded)
    np.testing.assert_array_equal(again.with_state, first.with_state)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "encoder-schnet-calpha.safetensors",
        "forecast-schnet-calpha.npz",
    ]
    swapped = ["--train", str(tmp_path / "test.npz"), "--test", str(tmp_path / "train.npz"), "--out", files[-1]]
    assert main(["forecast", "schnet-calpha", *swapped]) == 2
    assert "trained on another run" in capsys.readouterr().err
    assert main(["forecast", "schnet", *files]) == 2
    assert "benchmarks.molecules train" in capsys.readouterr().err
    kept = tmp_path / "a" / "encoder-schnet-calpha.safetensors"
    kept.with_name("encoder-schnet.safetensors").write_bytes(kept.read_bytes()[:-50])
    assert main(["forecast", "schnet", *files]) == 2
    assert "is damaged" in capsys.readouterr().err
    speed = ["speed", "distances", "--train", files[1], *short, "--out", str(tmp_path / "speed.csv")]
    assert main(speed) == 0
    with (tmp_path / "speed.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["method"], line["steps"], line["device"]) for line in lines] == [("distances", "3", "cpu, 1 thread")]
    assert all(float(line["steps_per_second"]) > 0 for line in lines)


def test_thinned_frames_have_the_same_lag(runs):
    thin = runs[0].thinned(5)
    assert (thin.interval, thin.lag, len(thin)) == (10.0, 2, 600)
    np.testing.assert_array_equal(thin.q, runs[0].q[::5])
    for bad in (0, 3, 20):
        with pytest.raises(ValueError, match="--every must divide the 10 frames of 2 ps"):
            runs[0].thinned(bad)


class Noise(torch.nn.Module):
    """Features that know nothing of the state: heights of the beads, which are noise."""

    def forward(self, positions):
        return 50 * positions[:, : experiment.RANK, 2]


def test_with_the_state_even_noise_forecasts_as_counting_does(runs):
    """The state is among the functions of the closed form, so the means over both states are the counted ones."""
    train, encoder = runs[0], Noise()
    operator = SpectralOperator(encoder, encoder, experiment.RANK)
    found = experiment.forecasted(operator, {"method": "noise", "frames": train.fingerprint()}, train, train)
    scores = analysis.judged(Forecast(found.with_state), Truth.of(train))
    # symmetric statistics count each pair in both directions: 1 in n, and float32
    assert scores["p_fold_unfolded_gap"] == pytest.approx(0, abs=5e-3)
    assert scores["p_fold_folded_gap"] == pytest.approx(0, abs=5e-3)
    # without it: an 8 × 8 matrix of noise of size 1/√3000 has a norm of 2·√(8/3000) = 0.10; P(folded) hardly differs
    assert abs(found.row["sigma1"]) < 0.15
    assert found.row["p_fold_unfolded_gap"] > 0.1


def test_valley_between_two_modes():
    rng = np.random.default_rng(0)
    q = np.concatenate([0.1 + 0.06 * rng.standard_normal(2000), 0.8 + 0.1 * rng.standard_normal(5000)]).clip(0, 1)
    place, depth = report.valley(q)
    assert 0.25 < place < 0.5  # four standard deviations from both modes
    assert depth < 0.05
    assert report.valley(rng.random(5000))[1] > 0.7


def test_frames_are_kept(runs, tmp_path):
    runs[0].save(tmp_path / "a.npz")
    again = frames.load(tmp_path / "a.npz")
    assert again.interval == 2.0
    assert (again.positions == runs[0].positions).all()
    np.testing.assert_allclose(again.q, runs[0].q)
    assert again.names.tolist() == ["CA"] * 10


def test_length_of_a_training():
    assert Settings("schnet").n_steps(1000) == experiment.RECIPES["schnet"].steps
    assert Settings("schnet", steps=7).n_steps(1000) == 7
    assert Settings("schnet", epochs=100).n_steps(2560) == 1000
    with pytest.raises(ValueError, match="The encoder must be one of"):
        Settings("mlp")


# ---------------------------------------------------------------- what is missing


def test_missing_structure(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("NCPROB_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"5AWL with --pdb, or set NCPROB_DATA"):
        structure.chignolin_path()
    with pytest.raises(FileNotFoundError, match=r"none\.pdb is not there"):
        structure.chignolin_path(tmp_path / "none.pdb")
    (tmp_path / "empty.pdb").write_text("REMARK\n")
    with pytest.raises(ValueError, match="must hold ATOM records"):
        structure.read_pdb(tmp_path / "empty.pdb")


def test_missing_openmm(monkeypatch, native_file, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "openmm", None)
    assert main(["simulate", "backbone", "--pdb", str(native_file), "--out", str(tmp_path)]) == 2
    assert "pip install 'ncprob[md]'" in capsys.readouterr().err


def test_missing_mdtraj(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "mdtraj", None)
    (tmp_path / "a.dcd").write_bytes(b"")
    assert main(["frames", str(tmp_path / "a.dcd")]) == 2
    assert "pip install 'ncprob[md]'" in capsys.readouterr().err


def test_missing_trajectory_and_wrong_settings(tmp_path, capsys):
    missing = str(tmp_path / "none.npz")
    assert main(["train", "distances", "--train", missing, "--test", missing]) == 2
    assert "benchmarks.molecules simulate" in capsys.readouterr().err
    with pytest.raises(ValueError, match="must be one of backbone, calpha, alanine"):
        simulate.Run("water", 1.0, 0)
    with pytest.raises(ValueError, match="--ns and --interval must be positive"):
        simulate.Run("backbone", 0.0, 0)
