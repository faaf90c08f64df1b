"""What a run would cost: trainings that are tried, evaluations on a small scale, operations that are counted."""
