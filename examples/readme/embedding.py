import tensorflow as tf

from opwright import tpu

embedding = tf.tpu.experimental.embedding
strategy = tpu.software_strategy()  # in place of tf.distribute.TPUStrategy(resolver)
with strategy.scope():
    films = embedding.TableConfig(vocabulary_size=1000, dim=16, name="films")
    features = {"seen": embedding.FeatureConfig(films, output_shape=[4])}
    embedding.TPUEmbedding(features, embedding.Adagrad(0.1)).build()
print(tpu.embedding_lookup([7, 0, 1, 3]).shape)  # (4, 16)
