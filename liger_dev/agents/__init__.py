"""Agents on the Anthropic SDK: a stage's inputs in, the same outputs as the builtin engine's out, and a transcript of how."""
