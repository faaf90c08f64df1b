"""One layer of linear self-attention: population loss, optimum and risk, on the training law and under every shift."""
