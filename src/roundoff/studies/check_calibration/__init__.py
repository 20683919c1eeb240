"""Whether a calibration set is fit for finding ranges: what is wrong with it, and what to do."""
