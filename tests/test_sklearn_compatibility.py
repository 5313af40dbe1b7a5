"""scikit-learn's own contract of an estimator."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from ncprob import NCPRegressor

FAST = NCPRegressor(
    coordinates="residual",
    hidden_sizes=(16,),
    rank=4,
    max_steps=60,
    learning_rate=2e-2,
    random_state=0,
    device="cpu",
    progress=False,
)

EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "minibatches are drawn with probability proportional to the "
    "weights: equal to repeated rows in expectation, not to the bit",
    "check_methods_subset_invariance": "networks compute in float32, whose rounding depends on the size of the batch: "
    "answers agree to 1e-6, the check asks for 1e-7",
}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([FAST], expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
