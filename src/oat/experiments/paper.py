"""What the paper reports (https://ordered-action-tokenization.github.io/): success in percent, tokens, milliseconds.

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

PER_TASK: dict[SimulatorName, dict[str, dict[str, float]]] = {
    "robomimic": {
        "lift": {
            **{"DP": 99.6, "Bin": 86.0, "FAST": 53.6, "QueST": 98.8, "OAT×_8": 96.8},
            **{"OAT_1": 89.6, "OAT_2": 86.6, "OAT_4": 99.2, "OAT_8": 99.2},
        },
        "square": {
            **{"DP": 24.0, "Bin": 1.2, "FAST": 0.4, "QueST": 29.2, "OAT×_8": 16.0},
            **{"OAT_1": 6.4, "OAT_2": 11.2, "OAT_4": 23.6, "OAT_8": 39.2},
        },
        "can": {
            **{"DP": 77.6, "Bin": 31.2, "FAST": 18.0, "QueST": 72.8, "OAT×_8": 70.4},
            **{"OAT_1": 56.4, "OAT_2": 59.6, "OAT_4": 73.2, "OAT_8": 80.8},
        },
    },
    "metaworld": {
        "box-close": {
            **{"DP": 21.2, "Bin": 9.6, "FAST": 0.0, "QueST": 12.4, "OAT×_8": 32.4},
            **{"OAT_1": 20.0, "OAT_2": 32.4, "OAT_4": 37.2, "OAT_8": 44.4},
        },
        "coffee-pull": {
            **{"DP": 27.6, "Bin": 24.4, "FAST": 16.4, "QueST": 28.4, "OAT×_8": 19.6},
            **{"OAT_1": 15.2, "OAT_2": 19.2, "OAT_4": 22.4, "OAT_8": 26.4},
        },
        "disassemble": {
            **{"DP": 23.2, "Bin": 20.8, "FAST": 10.4, "QueST": 23.2, "OAT×_8": 13.6},
            **{"OAT_1": 6.4, "OAT_2": 10.8, "OAT_4": 14.0, "OAT_8": 17.2},
        },
        "stick-pull": {
            **{"DP": 5.2, "Bin": 3.2, "FAST": 1.6, "QueST": 7.6, "OAT×_8": 4.8},
            **{"OAT_1": 3.6, "OAT_2": 3.2, "OAT_4": 4.4, "OAT_8": 9.6},
        },
    },
}

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
"""On a real robot, by task: successes in `REAL_TRIALS` trials."""
REAL_TRIALS = 20

CODEBOOK: dict[tuple[int, ...], Success] = {
    (8, 6, 5): (29.2, 0.8),
    (8, 8, 8): (53.5, 1.2),
    (8, 5, 5, 5): (56.3, 1.0),
    (8, 8, 6, 5): (54.6, 1.1),
    (7, 5, 5, 5, 5): (46.9, 0.6),
}
"""On LIBERO, by FSQ levels."""

ACTION_DIMS: dict[SimulatorName, int] = {"libero": 7, "robomimic": 7, "metaworld": 4, "robocasa": 12}
"""D_a of its four benchmarks."""

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
"""By number of tokens: the mean squared error of the one chunk that it shows refined."""
