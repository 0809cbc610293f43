"""Exporters: the decoder, the tables, the pages of each."""
