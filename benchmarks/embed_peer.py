"""simple_elmo as a contender of benchmarks/embed.py; run by the Python of the environment that has it.

    PYTHON embed_peer.py FOLDER THREADS

FOLDER holds the model in the official format.
"""

import os
import sys

from embed_serve import serve

BATCH = 32  # its own default


class SimpleElmo:
    """One session for all calls, and no warm-up inside of them: both are to its advantage."""

    told, mode = "simple_elmo, batches of 32", "float32"

    def __init__(self, folder):
        import logging

        import tensorflow as tf
        from simple_elmo import ElmoModel
        from simple_elmo.elmo import weight_layers

        self.model = ElmoModel()
        logging.getLogger().setLevel(logging.ERROR)
        self.model.load(folder, max_batch_size=BATCH)
        self.session = tf.compat.v1.Session()
        with self.session.as_default():
            made = weight_layers("input", self.model.sentence_embeddings_op, use_layers="average")
            self.model.elmo_sentence_input = made
            self.session.run(tf.compat.v1.global_variables_initializer())

    def embed(self, sentences, batch):
        self.model.get_elmo_vectors(sentences, warmup=False, layers="average", session=self.session)


if __name__ == "__main__":
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = sys.argv[2]
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    serve(lambda: SimpleElmo(sys.argv[1]))
