"""RAGEN on stock verl: environments, a multi-turn rollout, uncertainty filtering and recipes.

These names are the public interface (docs/public_api.md); everything else may change with any version. Importing this
package loads none of them: a name is imported when it is first used, so that a process that does not train loads
neither torch nor verl nor gymnasium.
"""

from importlib import import_module
from typing import Any

__all__ = [
    "Accepts",
    "AdvantageBatch",
    "Candidates",
    "Context",
    "Env",
    "Evidence",
    "FreeTextEnv",
    "Parsed",
    "Played",
    "Player",
    "Policy",
    "Protocol",
    "RecipeError",
    "Rule",
    "Step",
    "ToolEnv",
    "ToolError",
    "Trajectory",
    "Turn",
    "cause",
    "centred",
    "context",
    "estimate",
    "estimator",
    "evaluator",
    "indicator",
    "make",
    "policy",
    "policy_loss",
    "protocol",
    "register",
    "reward",
    "score",
    "select",
    "strategy",
    "tool",
]
__version__ = "0.1.0"

_HOMES = {
    "ragen_verl.env": ("Env", "FreeTextEnv", "Step", "make", "register"),
    "ragen_verl.env.tools": ("ToolEnv", "ToolError", "tool"),
    "ragen_verl.errors": ("RecipeError",),
    "ragen_verl.values": ("Accepts",),
    "ragen_verl.advantages": ("estimator",),
    "ragen_verl.advantages.batch": ("AdvantageBatch",),
    "ragen_verl.advantages.estimate": ("estimate",),
    "ragen_verl.advantages.moments": ("centred",),
    "ragen_verl.diagnostics": ("Evidence", "cause", "indicator"),
    "ragen_verl.filter": ("Candidates", "Rule", "score", "select", "strategy"),
    "ragen_verl.rollout.context": ("Context", "context"),
    "ragen_verl.rollout.protocol": ("Parsed", "Protocol", "protocol"),
    "ragen_verl.rollout.reward": ("reward",),
    "ragen_verl.rollout.trajectory": ("Trajectory", "Turn"),
    "ragen_verl.training.losses": ("policy_loss",),
    "ragen_lab.evaluate": ("Player", "Policy", "policy"),  # of the laboratory, which the layer itself never loads
    "ragen_lab.score": ("Played", "evaluator"),
}


def __getattr__(name: str) -> Any:
    """Import the module of a public name when the name is first used (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            globals()[name] = found = getattr(import_module(home), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
