"""Format of log lines."""

from __future__ import annotations

import logging
import re

#: Addresses that open something for whoever knows them.
SECRET_ADDRESS = re.compile(r"(/(?:join|reset|calendar)/)[^/\s?#\"']+")


class MaskingFormatter(logging.Formatter):
    """Leaves out the secrets of links, wherever a line or its traceback repeats an address."""

    def format(self, record: logging.LogRecord) -> str:
        return SECRET_ADDRESS.sub(r"\1[secret]", super().format(record))
