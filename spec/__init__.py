"""The law: prose with rule ids, invariants, documents, and what is generated from them."""
