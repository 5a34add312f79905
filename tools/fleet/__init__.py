"""The parts of tools/fleet.py: a simulation of a group of servers, and its check against real servers."""
