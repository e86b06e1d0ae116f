"""Benchmarks; they print ratios, because absolute times depend on the machine."""
