"""What a device and the server share: ops, chains, the fold and its answers.

Pure: no I/O, no clock, no randomness. Times and devices arrive as arguments.
"""
