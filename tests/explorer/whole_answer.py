"""The numbers of the page for all levels at once; the page itself asks for them in two calls."""

from countveil.explorer.answers import Answer, answer_at_judged_level, completed
from countveil.explorer.settings import Settings
from countveil.plan.plans import Plan


def answer(plan: Plan, settings: Settings) -> Answer:
    return completed(answer_at_judged_level(plan, settings), plan, settings)
