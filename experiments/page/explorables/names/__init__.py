"""When does a network take its name? Losses and names over the training of five kinds of networks, under one cursor."""
