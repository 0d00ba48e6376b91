"""A weighting of your own: data size, discounted by a power of the age instead of an exponential.

fedtide run policy.weighting=examples/my_weighting.py:polynomial policy.weighting.power=0.5
"""


def polynomial(num_samples, age, power=1.0):
    """Return w_k proportional to |S_k| (1 + a_k)^-power, summing to 1; `power` is given as policy.weighting.power."""
    weights = num_samples * (1.0 + age) ** -power
    return weights / weights.sum()
