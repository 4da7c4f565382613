"""Masked evaluation over Z_2^64: values, operations, and the two ways to run a program (dealing and evaluating)."""
