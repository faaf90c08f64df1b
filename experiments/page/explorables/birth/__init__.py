"""The induction head is born: the attention and the accuracy of one network along its training, whole or clamped."""
