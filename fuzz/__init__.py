"""The world, the crash points and the explorers that check the kernel and its hosts."""
