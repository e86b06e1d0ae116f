"""The conformance kit: any other runtime of the specification against the reference."""
