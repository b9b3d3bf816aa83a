"""The types of the public names; `__init__.py` imports them when they are used."""

from ragen_lab.evaluate import Player as Player
from ragen_lab.evaluate import Policy as Policy
from ragen_lab.evaluate import policy as policy
from ragen_lab.score import Played as Played
from ragen_lab.score import evaluator as evaluator

from ragen_verl.advantages import estimator as estimator
from ragen_verl.advantages.batch import AdvantageBatch as AdvantageBatch
from ragen_verl.advantages.estimate import estimate as estimate
from ragen_verl.advantages.moments import centred as centred
from ragen_verl.diagnostics import Evidence as Evidence
from ragen_verl.diagnostics import cause as cause
from ragen_verl.diagnostics import indicator as indicator
from ragen_verl.env import Env as Env
from ragen_verl.env import FreeTextEnv as FreeTextEnv
from ragen_verl.env import Step as Step
from ragen_verl.env import make as make
from ragen_verl.env import register as register
from ragen_verl.env.tools import ToolEnv as ToolEnv
from ragen_verl.env.tools import ToolError as ToolError
from ragen_verl.env.tools import tool as tool
from ragen_verl.errors import RecipeError as RecipeError
from ragen_verl.filter import Candidates as Candidates
from ragen_verl.filter import Rule as Rule
from ragen_verl.filter import score as score
from ragen_verl.filter import select as select
from ragen_verl.filter import strategy as strategy
from ragen_verl.rollout.context import Context as Context
from ragen_verl.rollout.context import context as context
from ragen_verl.rollout.protocol import Parsed as Parsed
from ragen_verl.rollout.protocol import Protocol as Protocol
from ragen_verl.rollout.protocol import protocol as protocol
from ragen_verl.rollout.reward import reward as reward
from ragen_verl.rollout.trajectory import Trajectory as Trajectory
from ragen_verl.rollout.trajectory import Turn as Turn
from ragen_verl.training.losses import policy_loss as policy_loss
from ragen_verl.values import Accepts as Accepts

__version__: str
