"""Runs the scripts of a workflow in QuickJS, in a worker process with limits."""
