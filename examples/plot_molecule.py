"""
A molecule that opens and closes
================================

Five beads make two arms that open and close like scissors; the opening follows a double well, so all transition
probabilities are known exactly. Frames come as positions in space, turned and shifted at random, as from a simulation
in which the molecule tumbles. A SchNet, which sees only distances, learns the transition operator; then every question
about the kinetics is answered from it. With a trajectory file the first lines would be
``TimeLaggedPairs.from_files("run.dcd", topology="top.pdb", lag=20)``.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.spatial.transform import Rotation

import ncprob
from ncprob import Kinetics, SpectralOperator, TimeLaggedPairs, datasets
from ncprob.molecules import SchNet, pair_distances

process = datasets.DoubleWell()
opening = process.trajectories(1500, n_trajectories=5, random_state=0)


def beads(opening, rng):
    """Positions (frames, 5, 3) of the beads, with some thermal noise, tumbling."""
    angle = 1.0 + 0.3 * opening
    flat = np.zeros((len(opening), 5, 3))
    for arm, sign in ((0, -1.0), (2, 1.0)):
        for k in (1, 2):
            flat[:, arm + k, 0], flat[:, arm + k, 1] = k * np.cos(angle), sign * k * np.sin(angle)
    flat += 0.01 * rng.standard_normal(flat.shape)
    turned = np.einsum("tij,taj->tai", Rotation.random(len(opening), random_state=rng).as_matrix(), flat)
    return (turned + rng.standard_normal((len(opening), 1, 3))).astype(np.float32)


rng = np.random.default_rng(1)
frames = [beads(run, rng) for run in opening]

# %%
# One encoder serves both times. The two beads of an arm are of different types; the arms are alike, so exchanging them
# changes nothing.

learning, last = TimeLaggedPairs(frames, lag=1).split((0.8, 0.2), whole_trajectories=True)
torch.manual_seed(0)
encoder = SchNet(["hinge", "middle", "end", "middle", "end"], 4, width=16, n_interactions=2, cutoff=5.0)
operator = SpectralOperator(encoder, encoder, rank=4)
ncprob.train(operator, learning, max_steps=150, batch_size=256, learning_rate=5e-3, device="cpu", progress=False)
kinetics = Kinetics(operator.postprocess(learning), learning, reversible=True)

# %%
# States are functions of a frame. The transition matrix comes with sampling errors, which count frames that follow each
# other as what they are: nearly the same.


def ends(x):
    """Distance between the ends of the arms."""
    return pair_distances(x, [(2, 4)])[:, 0]


barrier = 4 * np.sin(1.0)
matrix = kinetics.transition_matrix([lambda x: ends(x) < barrier, lambda x: ends(x) >= barrier])  # closed, open
exact = process.transition_matrix([-np.inf, 0.0, np.inf])
times, exact_time = kinetics.timescales(1), process.timescales(1)[0] / (process.step * process.n_steps)
print("P(open a frame later | closed)")
print(f"  learned {matrix.value[0, 1]:.3f} ± {matrix.standard_error[0, 1]:.3f}, exact {exact[0, 1]:.3f}")
print("slowest timescale in frames")
print(f"  learned {times.value[0]:.2f} ± {times.standard_error[0]:.2f}, exact {exact_time:.2f}")
assert abs(matrix.value[0, 1] - exact[0, 1]) < 4 * matrix.standard_error[0, 1]
assert abs(times.value[0] - exact_time) < 4 * times.standard_error[0]

# %%
# A run that the model has not seen: the distance of the ends, forecast one frame ahead with its mean and its 10 % and
# 90 % quantiles. Right: the slow coordinate that the encoder found against the opening, which it was never shown.

x, y = last.tensors()
laws = kinetics.distribution(x, ends)
low, high = laws.quantile([0.1, 0.9]).mT
inside = ((ends(y) >= low) & (ends(y) <= high)).double().mean()
print(f"between the quantiles: {inside:.0%}")
assert abs(inside - 0.8) < 0.06

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), width_ratios=(2, 1))
shown = slice(0, 150)
time = np.arange(len(y))[shown]
left.fill_between(time, low[shown], high[shown], color="0.85", label="10 % to 90 %")
left.plot(time, ends(y)[shown], ".-", color="#4c72b0", linewidth=0.6, markersize=3, label="simulation")
left.plot(time, laws.mean()[shown], color="#d55e00", linewidth=1, label="forecast mean")
left.axhline(barrier, color="black", linestyle="--", linewidth=0.8)
left.set(xlabel="frame", ylabel="distance of the ends", title="One frame ahead, in a run not seen before")
left.legend(frameon=False, ncols=3, loc="upper center")
left.margins(y=0.2)
right.plot(opening[-1][: len(x)], kinetics.coordinates(x, k=1)[:, 0], ".", markersize=2, color="#009e73")
right.set(xlabel="opening (hidden)", ylabel="slow coordinate", title="What the encoder found")
