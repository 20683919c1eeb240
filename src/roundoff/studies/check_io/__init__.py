"""Does the deployed side feed the model what training did, and if not, what did it do instead?"""
