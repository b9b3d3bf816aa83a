"""Twenty Questions with a judge that is a rule or a server."""

from ragen_envs.twenty_questions.env import TwentyQuestions

__all__ = ["TwentyQuestions"]
