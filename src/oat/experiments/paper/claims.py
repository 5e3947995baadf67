"""The paper's claims about the order of methods; whether each held is decided by `oat.evaluation.claims`."""

from oat.evaluation.claims import Claim

MONOTONE: Claim = ("more tokens act better", ("OAT_1", "OAT_2", "OAT_4", "OAT_8"))
RIVALS = ("DP", "Bin", "FAST", "QueST")
BETTER_THAN_RIVALS: tuple[Claim, ...] = tuple((f"OAT_8 acts better than {rival}", (rival, "OAT_8")) for rival in RIVALS)
