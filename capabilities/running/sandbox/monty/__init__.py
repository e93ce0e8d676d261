"""Interpreter of a part of Python, in processes of its own. Everybody else reaches it through these names."""

from capabilities.running.sandbox.monty.advice import advice_for
from capabilities.running.sandbox.monty.checking import PROVIDED, problems
from capabilities.running.sandbox.monty.gaps import module_advice
from capabilities.running.sandbox.monty.running import run as run_monty
from capabilities.running.sandbox.monty.running import why_no_monty

__all__ = ["PROVIDED", "advice_for", "module_advice", "problems", "run_monty", "why_no_monty"]
