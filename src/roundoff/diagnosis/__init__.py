"""Why a quantized or deployed network loses accuracy: causes proven by intervention, and what to do about them."""
