"""The older tools' names over elmokit, so that code written for them runs after changing its import line.

    from allennlp.commands.elmo import ElmoEmbedder              from elmokit.compat.allennlp import ...
    from allennlp.modules.elmo import Elmo, batch_to_ids
    from allennlp.modules.scalar_mix import ScalarMix
    from allennlp.modules.token_embedders import ElmoTokenEmbedder
    from simple_elmo import ElmoModel                            from elmokit.compat.simple_elmo import ElmoModel
    from elmoformanylangs import Embedder                        from elmokit.compat.manylangs import Embedder
    from bilm import Batcher, BidirectionalLanguageModel         from elmokit.compat.bilm import ...
    hub.Module("https://tfhub.dev/google/elmo/3")                elmokit.compat.tfhub.Module("allennlp:original")
    allennlp elmo in.txt out.hdf5 --all                          elmokit elmo in.txt out.hdf5 --all
    python -m elmoformanylangs test --input in ...               elmokit manylangs test --input in ...

Where a tool carried LSTM state from batch to batch, so does its counterpart here, and nowhere else in elmokit;
`stateful=False` switches it off. What differs on purpose stands in docs/migrating.md.
"""
