"""Template tags of the operators' screens."""
