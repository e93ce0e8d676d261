"""Copies of toolkits that organisations publish for others. The only room that reads them: who may see which is in
`queries.py`."""
