"""One folder per paper, one binary per figure or table."""
