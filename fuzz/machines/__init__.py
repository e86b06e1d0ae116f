"""The fuzzer's machines: one for the kernel alone, one for kernel and store, one for the whole host."""
