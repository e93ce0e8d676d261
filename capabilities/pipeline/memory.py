"""The memory of `capabilities/common/memory.py`, for those who import it from here."""

from capabilities.common.memory import Memory, forget_everything

__all__ = ["Memory", "forget_everything"]
