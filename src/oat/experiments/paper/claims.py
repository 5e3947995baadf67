"""The paper's claims about the order of methods, and what it leaves out; `oat.evaluation.claims` decides whether each
held."""

from oat.evaluation.claims import Claim

MONOTONE: Claim = ("more tokens act better", ("OAT_1", "OAT_2", "OAT_4", "OAT_8"))
RIVALS = ("DP", "Bin", "FAST", "QueST")
BETTER_THAN_RIVALS: tuple[Claim, ...] = tuple((f"OAT_8 acts better than {rival}", (rival, "OAT_8")) for rival in RIVALS)
ORDERED: Claim = ("OAT without ordering acts worse", ("OAT×_8", "OAT_8"))
BETTER_THAN_REGRESSION: Claim = ("tokens act better than regression", ("BC", "OAT_8"))
"""Which the paper does not compare with."""
SUCCESS: tuple[Claim, ...] = (*BETTER_THAN_RIVALS, ORDERED, BETTER_THAN_REGRESSION, MONOTONE)
"""What tables of success of all methods decide."""
