"""The model: precision, compiling, checkpointing of activations, normalization, modes."""
