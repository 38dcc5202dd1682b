"""Static word vectors as an encoder: word2vec, GloVe, fastText."""
