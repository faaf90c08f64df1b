"""One layer of linear self-attention: population loss, optimum and risk, in training and under every shift."""
