"""Python modules of an organisation, which its Python tools import: versions, who approves them, who uses them."""
