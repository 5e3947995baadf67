"""Numbers of the paper (https://ordered-action-tokenization.github.io/): success in percent, tokens, milliseconds.

Its policies see images and were trained on GPUs for far longer than a CPU allows, so its numbers stand beside ours to
compare the order of methods, not their height.
"""

from oat.sims.config import SimulatorName

Success = tuple[float, float]
"""Mean and standard error over five seeds."""

AVERAGE: dict[SimulatorName, dict[str, Success]] = {
    "libero": {
        **{"DP": (36.6, 0.2), "Bin": (14.4, 0.6), "FAST": (23.0, 0.5), "QueST": (48.2, 0.6), "OAT×_8": (35.2, 0.7)},
        **{"OAT_1": (11.7, 0.7), "OAT_2": (39.8, 0.5), "OAT_4": (46.4, 0.6), "OAT_8": (56.3, 1.0)},
    },
    "robomimic": {
        **{"DP": (67.1, 1.3), "Bin": (39.5, 1.2), "FAST": (24.0, 1.5), "QueST": (66.9, 0.8), "OAT×_8": (61.1, 1.2)},
        **{"OAT_1": (50.8, 1.4), "OAT_2": (52.5, 1.2), "OAT_4": (65.3, 0.9), "OAT_8": (73.1, 0.5)},
    },
    "metaworld": {
        **{"DP": (19.3, 1.6), "Bin": (14.5, 0.7), "FAST": (7.1, 0.7), "QueST": (17.9, 0.9), "OAT×_8": (17.6, 0.5)},
        **{"OAT_1": (11.3, 0.4), "OAT_2": (16.4, 0.3), "OAT_4": (19.5, 0.8), "OAT_8": (24.4, 0.3)},
    },
    "robocasa": {
        **{"DP": (54.0, 1.6), "Bin": (27.7, 0.9), "FAST": (13.2, 1.1), "QueST": (52.3, 1.9), "OAT×_8": (48.5, 1.6)},
        **{"OAT_1": (47.7, 1.3), "OAT_2": (50.3, 0.8), "OAT_4": (51.7, 1.0), "OAT_8": (54.6, 1.1)},
    },
}

_LABELS = ("DP", "Bin", "FAST", "QueST", "OAT×_8", "OAT_1", "OAT_2", "OAT_4", "OAT_8")


def _row(*success: float) -> dict[str, float]:
    """Return one row of the appendix's table, whose columns are in the order of `_LABELS`."""
    return dict(zip(_LABELS, success, strict=True))


PER_TASK: dict[SimulatorName, dict[str, dict[str, float]]] = {
    "libero": {
        "put both the alphabet soup and the tomato sauce in the basket": _row(
            26.0, 1.6, 14.8, 22.4, 5.6, 2.4, 15.2, 14.8, 26.8
        ),
        "put both the cream cheese box and the butter in the basket": _row(
            18.8, 3.6, 6.4, 16.0, 5.6, 1.6, 16.4, 16.4, 35.6
        ),
        "put both the alphabet soup and the cream cheese box in the basket": _row(
            24.8, 4.0, 1.6, 31.6, 21.2, 1.6, 25.2, 32.4, 51.6
        ),
        "put both moka pots on the stove": _row(52.4, 8.8, 33.6, 47.6, 33.6, 2.8, 39.2, 57.2, 61.2),
        "turn on the stove and put the moka pot on it": _row(56.8, 24.0, 52.8, 79.6, 65.6, 23.6, 59.2, 68.8, 87.6),
        "put the black bowl in the bottom drawer of the cabinet and close it": _row(
            62.8, 46.0, 50.4, 88.0, 81.2, 26.0, 69.6, 78.4, 91.2
        ),
        "put the white mug on the left plate and put the yellow and white mug on the right plate": _row(
            20.0, 2.8, 16.0, 20.8, 6.0, 0.8, 14.0, 24.4, 31.2
        ),
        "pick up the book and place it in the back compartment of the caddy": _row(
            18.4, 31.2, 28.4, 65.6, 73.6, 26.8, 81.2, 86.0, 70.8
        ),
        "put the white mug on the plate and put the chocolate pudding to the right of the plate": _row(
            29.6, 6.8, 22.0, 35.6, 3.2, 3.6, 13.6, 14.8, 32.0
        ),
        "put the yellow and white mug in the microwave and close it": _row(
            56.0, 15.6, 4.4, 74.8, 56.0, 28.0, 64.8, 70.8, 75.2
        ),
    },
    "robomimic": {
        "lift": _row(99.6, 86.0, 53.6, 98.8, 96.8, 89.6, 86.6, 99.2, 99.2),
        "square": _row(24.0, 1.2, 0.4, 29.2, 16.0, 6.4, 11.2, 23.6, 39.2),
        "can": _row(77.6, 31.2, 18.0, 72.8, 70.4, 56.4, 59.6, 73.2, 80.8),
    },
    "metaworld": {
        "box-close": _row(21.2, 9.6, 0.0, 12.4, 32.4, 20.0, 32.4, 37.2, 44.4),
        "coffee-pull": _row(27.6, 24.4, 16.4, 28.4, 19.6, 15.2, 19.2, 22.4, 26.4),
        "disassemble": _row(23.2, 20.8, 10.4, 23.2, 13.6, 6.4, 10.8, 14.0, 17.2),
        "stick-pull": _row(5.2, 3.2, 1.6, 7.6, 4.8, 3.6, 3.2, 4.4, 9.6),
    },
    "robocasa": {
        "CloseDrawer": _row(52.0, 20.4, 20.8, 54.8, 55.6, 47.2, 55.2, 52.0, 53.6),
        # The paper calls it coffee press button, as RoboCasa did before its version 1.0.
        "StartCoffeeMachine": _row(56.8, 22.0, 8.4, 55.6, 43.2, 49.6, 53.6, 52.8, 63.6),
        "TurnOffMicrowave": _row(52.8, 31.2, 16.8, 42.0, 36.4, 35.2, 34.0, 39.2, 42.8),
        "TurnOffSinkFaucet": _row(54.4, 27.2, 6.8, 56.8, 58.8, 58.8, 58.4, 62.8, 58.4),
    },
}
"""The appendix's table; means over five seeds."""

REAL: dict[str, dict[str, int]] = {
    "pick and place ball": {
        **{"DP": 14, "Bin": 4, "FAST": 8, "QueST": 11},
        **{"OAT_1": 7, "OAT_2": 11, "OAT_4": 13, "OAT_8": 16},
    },
    "stack cups": {
        **{"DP": 11, "Bin": 8, "FAST": 6, "QueST": 8},
        **{"OAT_1": 3, "OAT_2": 9, "OAT_4": 12, "OAT_8": 16},
    },
}
"""Successes on a real robot, by task and method, in `REAL_TRIALS` trials each."""
REAL_TRIALS = 20

CODEBOOK: dict[tuple[int, ...], Success] = {
    (8, 6, 5): (29.2, 0.8),
    (8, 8, 8): (53.5, 1.2),
    (8, 5, 5, 5): (56.3, 1.0),
    (8, 8, 6, 5): (54.6, 1.1),
    (7, 5, 5, 5, 5): (46.9, 0.6),
}
"""Success on LIBERO, by FSQ levels."""

LATENCY: dict[SimulatorName, dict[str, tuple[float | None, float]]] = {
    "libero": {
        **{"DP": (None, 42.0), "Bin": (224, 517.2), "FAST": (44.2, 114.4), "QueST": (8, 27.1)},
        **{"OAT_1": (1, 10.5), "OAT_2": (2, 13.2), "OAT_4": (4, 17.4), "OAT_8": (8, 27.4)},
    },
    "robomimic": {
        **{"DP": (None, 38.1), "Bin": (224, 509.5), "FAST": (53.1, 142.0), "QueST": (8, 29.6)},
        **{"OAT_1": (1, 11.3), "OAT_2": (2, 15.3), "OAT_4": (4, 18.4), "OAT_8": (8, 29.9)},
    },
    "metaworld": {
        **{"DP": (None, 37.7), "Bin": (128, 306.6), "FAST": (49.8, 129.7), "QueST": (8, 31.4)},
        **{"OAT_1": (1, 15.5), "OAT_2": (2, 17.9), "OAT_4": (4, 22.1), "OAT_8": (8, 31.3)},
    },
    "robocasa": {
        **{"DP": (None, 35.3), "Bin": (384, 888.3), "FAST": (69.7, 166.1), "QueST": (8, 30.2)},
        **{"OAT_1": (1, 13.5), "OAT_2": (2, 15.8), "OAT_4": (4, 19.8), "OAT_8": (8, 30.0)},
    },
}
"""Mean tokens per chunk and milliseconds per inference on an A100."""

REFINEMENT = {1: 0.592, 2: 0.446, 4: 0.038, 8: 0.009}
"""Mean squared error of the one chunk that the paper shows refined, by number of tokens."""
