"""Durations in words, rounded: one way for pages, results and errors. Pure."""

from __future__ import annotations


def duration(value: float) -> str:
    """0.5 s, 3.2 s, 45 s, 1 min, 2 min 5 s, 3 h 2 min; never below zero."""
    value = max(float(value), 0.0)
    if value != value or value == float("inf"):
        return "for ever"
    if value < 0.995:
        return f"{value:.2f}".rstrip("0").rstrip(".") + " s"
    if value < 9.95:
        return f"{value:.1f}".removesuffix(".0") + " s"
    minutes, rest = divmod(round(value), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min {rest} s".removesuffix(" 0 s")
    return f"{hours} h {minutes} min".removesuffix(" 0 min")
