"""What surrounds an experiment: plans of many runs, what carries them out, one record of them."""
