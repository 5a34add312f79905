"""A small world in plain English: stories, questions, sums, colours, days, records, tools. Training data for a tiny model (CC0)."""
