"""Tasks of few kinds and of many, and tasks that point elsewhere than those of training."""
