"""Raw text to a biLM: corpus, vocabulary, objective, trainer."""
