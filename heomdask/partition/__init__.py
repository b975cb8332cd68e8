"""One solve over several processes: who owns which ADOs, and what they tell each other."""
