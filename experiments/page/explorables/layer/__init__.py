"""A layer is a gradient step: ten trained networks of two inputs on the reader's prompt."""
