"""Curves read off figures of arXiv 2504.20073, for tests; approximate, as anything read off a figure.

`FIGURE_6`: training metrics at the steps 10, 30, ..., 190; the grey level of missing points is None. The GRPO runs log
a normalised score, so their spread starts near 1 (not the raw return).
`FIGURE_5`, `FIGURE_7`: held-out success at the steps 0, 10, ..., 200. `FIGURE_9`: at the steps 0, 20, ..., 200.
"""

from __future__ import annotations

import math

SUCCESS = "val-env/success"
REWARD, STD = "rollout/in_group_reward_mean", "rollout/in_group_reward_std"
GRAD, ENTROPY = "actor/grad_norm", "actor/entropy"

FIGURE_6 = {
    "Bandit PPO": {
        REWARD: [0.009, 0.139, 0.081, 0.155, 0.128, 0.129, 0.014, -0.031, -0.022, -0.038],
        STD: [0.178, 0.108, 0.135, 0.144, 0.132, 0.158, 0.110, 0.121, 0.100, 0.080],
        GRAD: [10, 77, 34, 47, 41, 55, 48, 47, 3.5e3, 6.6e3],
        ENTROPY: [2.12, 1.81, 1.82, 1.47, 1.11, 0.85, 0.74, 0.67, 0.59, 0.48],
    },
    "Bandit GRPO": {
        REWARD: [-0.011, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001],
        STD: [1.00, 0.63, 0.50, 0.18, 0.13, 0.18, 0.13, 0.10, 0.05, 0.03],
        GRAD: [9.4, 8, 4.5, 2.1, 1.1, 1.6, 1.4, 1.8e3, 1.8e3, 1.8e3],
        ENTROPY: [2.09, 2.22, 2.31, 2.80, 3.61, 4.50, 5.03, 5.36, 5.61, 5.87],
    },
    "FrozenLake PPO": {
        REWARD: [-0.195, 0.082, 0.077, 0.089, -0.148, -0.406, -0.490, -0.498, -0.498, -0.498],
        STD: [0.356, 0.383, 0.350, 0.325, 0.251, 0.132, 0.017, 0.003, 1e-4, None],
        GRAD: [8.6, 30, 25, 35, 160, 160, 680, 970, 870, 98],
        ENTROPY: [1.26, 1.32, 1.21, 1.10, 1.06, 1.04, 0.88, 0.63, 0.47, 0.39],
    },
    "FrozenLake GRPO": {
        REWARD: [-0.237, -0.094, -0.102, -0.045, -0.028, -0.029, -0.027, -0.021, -0.015, -0.013],
        STD: [0.64, 0.91, 0.83, 0.77, 0.72, 0.66, 0.65, 0.60, 0.66, 0.65],
        GRAD: [10, 8.1, 14, 12, 20, 26, 27, 33, 26, 7.5],
        ENTROPY: [1.44, 1.30, 1.33, 1.12, 0.86, 0.65, 0.53, 0.52, 0.48, 0.45],
    },
    "Sokoban PPO": {
        REWARD: [0.218, -0.377, -0.337, -0.434, -0.323, -0.356, -0.502, -0.498, -0.498, -0.498],
        STD: [1.53, 1.10, 0.94, 0.70, 0.71, 0.49, 0.011, 1e-4, None, None],
        GRAD: [7.8, 8.7, 10, 17, 57, 2.8e3, 3.4e3, 1.2e7, 1.2e7, 1.1e7],
        ENTROPY: [1.26, 1.09, 1.10, 0.94, 0.81, 0.73, 0.83, 1.06, 1.05, 0.96],
    },
    "Sokoban GRPO": {
        REWARD: [-0.455, -0.498, -0.488, -0.497, -0.498, -0.498, -0.498, -0.498, -0.498, -0.498],
        STD: [0.95, 0.25, 0.36, 0.14, 0.05, 0.07, 0.05, 0.07, 0.15, 0.15],
        GRAD: [6.4, 1.1, 8.7, 1.2, 0.33, 1.8, 4.1, 4.6, 3.4, 1.0],
        ENTROPY: [1.05, 0.97, 1.00, 1.09, 1.43, 2.46, 4.17, 5.87, 6.83, 7.33],
    },
}

FIGURE_5 = {
    "Bandit PPO": [
        *(0.12, 0.17, 0.27, 0.39, 0.29, 0.37, 0.48, 0.58, 0.63, 0.70, 0.75),
        *(0.64, 0.50, 0.39, 0.36, 0.29, 0.42, 0.42, 0.41, 0.30, 0.20),
    ],
    "Bandit GRPO": [0.12, 0.19, 0.10, 0.01, 0.09, 0.06, 0.02, *[0.0] * 14],
    "Sokoban PPO": [
        *(0.082, 0.098, 0.090, 0.121, 0.104, 0.110, 0.107, 0.103, 0.090, 0.064, 0.043, 0.025, 0.011),
        *[0.0] * 8,
    ],
    "FrozenLake PPO": [
        *(0.036, 0.130, 0.173, 0.188, 0.148, 0.181, 0.192, 0.169, 0.137, 0.097, 0.058, 0.021, 0.009, 0.004),
        *[0.001] * 7,
    ],
    "FrozenLake GRPO": [
        *(0.036, 0.153, 0.204, 0.173, 0.155, 0.189, 0.201, 0.201, 0.207, 0.205, 0.207, 0.206, 0.215),
        *(0.223, 0.232, 0.235, 0.238, 0.233, 0.228, 0.219, 0.212),
    ],
}

FIGURE_9_STARPO_S = {
    "Bandit": [0.10, 0.11, 0.21, 0.36, 0.82, 0.96, 1.0, 1.0, 1.0, 1.0, 1.0],
    "Sokoban": [0.063, 0.126, 0.079, 0.149, 0.188, 0.188, 0.188, 0.204, 0.212, 0.165, 0.188],
    "FrozenLake": [0.040, 0.051, 0.122, 0.173, 0.118, 0.154, 0.181, 0.197, 0.201, 0.205, 0.204],
}

FIGURE_9_STARPO = {
    "Bandit": [0.12, 0.27, 0.47, 0.70, 0.69, 0.84, 0.05, 0.64, 0.79, 0.07, 0.00],
    "FrozenLake": [0.036, 0.192, 0.227, 0.204, 0.139, 0.132, 0.094, 0.048, 0.008, 0.0, 0.0],
}


def every_step(curves: dict[str, list], first: int = 10, apart: int = 20) -> list[dict]:
    """A line per step between the points of figure 6: straight, gradient norms straight in their logarithm."""
    lines = []
    for step in range(first, first + apart * 9 + 1):
        at, part = divmod(step - first, apart)
        line = {"step": step}
        for name, points in curves.items():
            left, right = points[at], points[min(at + 1, 9)]
            if left is None or (right is None and part):
                continue
            share = part / apart if part else 0.0
            if name == GRAD:
                line[name] = math.exp((1 - share) * math.log(left) + share * math.log(right))
            else:
                line[name] = left + (share * (right - left) if share else 0.0)
        lines.append(line)
    return lines


def evaluations(successes: list[float], apart: int = 10) -> list[dict]:
    """A line per point of a held-out curve."""
    return [{"step": apart * i, SUCCESS: value, "val-env/Env/success": value} for i, value in enumerate(successes)]
