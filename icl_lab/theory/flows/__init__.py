"""The population gradient flow of linear attention: its path, limits, saddles, and what minibatch noise changes."""
