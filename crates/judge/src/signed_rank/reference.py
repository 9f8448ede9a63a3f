"""Writes reference.csv: signed-rank tests, estimates and intervals by exhaustive enumeration.

It shares no method with signed_rank.rs, which adds up distributions: each of the 2^n patterns of signs is
counted. R's wilcox.test has no exact values where there are ties or zeros.
"""

from fractions import Fraction
from itertools import combinations_with_replacement, product

DATA = [
    # The differences of Darwin's maize, in inches, without the last: no tie, no zero.
    [6.125, -8.375, 1, 2, 0.75, 2.875, 3.5, 5.125, 1.75, 3.625, 7, 3, 9.375, 7.5],
    # Ties within a sign and across signs.
    [1, 1, 1, -1, 2, 2, -2, 3, 4, -5, 5, 6],
    # Zeros, which take the lowest ranks and have no sign.
    [0, 0, 1, 2, -2, 4, 5, 0, -7, 8],
    # Both.
    [0, 0.5, -0.5, 0.5, 0.5, 0, 1, 1, -1, 2, 3, 3, -5, 8],
    # All on one side, and equal.
    [0.25] * 9,
    # Too few for an interval.
    [-1, 2, 0, 3, -3],
    # Nothing but zeros.
    [0, 0, 0, 0, 0, 0],
]
ALPHA = Fraction(1, 20)


def ranks(differences):
    """Mid-ranks of the absolute values, zeros ranked among them (Pratt)."""
    sizes = sorted(abs(difference) for difference in differences)
    first = {size: sizes.index(size) for size in sizes}
    return [Fraction(2 * first[size] + sizes.count(size) + 1, 2) for size in map(abs, differences)]


def probabilities(differences):
    signed = [(rank, difference > 0) for rank, difference in zip(ranks(differences), differences) if difference]
    observed = sum(rank for rank, positive in signed if positive)
    patterns = product([0, 1], repeat=len(signed))
    sums = [sum(rank for (rank, _), sign in zip(signed, signs) if sign) for signs in patterns]
    at_most = Fraction(sum(value <= observed for value in sums), len(sums))
    at_least = Fraction(sum(value >= observed for value in sums), len(sums))
    return at_most, min(Fraction(1), 2 * min(at_most, at_least))


def location(differences):
    """The median of the Walsh averages, and those at the depth that ranks without ties give."""
    count = len(differences)
    averages = sorted((Fraction(a) + Fraction(b)) / 2 for a, b in combinations_with_replacement(differences, 2))
    middle = len(averages) // 2
    estimate = averages[middle] if len(averages) % 2 else (averages[middle - 1] + averages[middle]) / 2
    sums = [sum(rank for rank, sign in enumerate(signs, 1) if sign) for signs in product([0, 1], repeat=count)]
    depth = 0
    while Fraction(sum(value <= depth for value in sums), len(sums)) <= ALPHA / 2:
        depth += 1
    return [estimate, averages[depth - 1], averages[-depth]] if depth else [estimate, None, None]


def main():
    with open("reference.csv", "w") as file:
        print("differences,at_most,two_sided,estimate,low,high", file=file)
        for differences in DATA:
            numbers = [*probabilities(differences), *location(differences)]
            fields = ["" if number is None else repr(float(number)) for number in numbers]
            print(" ".join(map(str, differences)), *fields, sep=",", file=file)


main()
