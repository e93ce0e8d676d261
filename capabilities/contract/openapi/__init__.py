"""OpenAPI documents (3.0 and 3.1) as definitions of HTTP tools. Pure: nothing is fetched, whatever they refer to.

`read_openapi` is the one way in. It is run in a child process: a document is text from outside.
"""

from capabilities.contract.openapi.reading import read_openapi

__all__ = ["read_openapi"]
