"""Connectors: the ways out of a workflow. Each knows one kind of target; none of them decides what is sent."""
