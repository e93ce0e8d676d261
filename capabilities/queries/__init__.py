"""What pages read, each in a fixed number of queries. The scope says whose rows they are. One module a noun."""

from capabilities.queries.agents import agents_by_name
from capabilities.queries.catalogue import CatalogueNumbers, catalogue_numbers

__all__ = ["CatalogueNumbers", "agents_by_name", "catalogue_numbers"]
