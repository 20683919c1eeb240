"""pulsar2 tune: the two flow charts of the vendor's manual, followed to their end."""
