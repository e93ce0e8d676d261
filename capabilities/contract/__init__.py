"""Pure rules of a tool call: what it is given, what it may return, how large a result may be. No Django here."""
