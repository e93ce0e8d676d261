"""Rows that members keep: their owner, their numbers and names, and how a kind of them is shown. Knows no single kind.

Each row is one member's own, and is read through `own.py`.
"""
