"""One folder for each question that a user asks of a network."""
