import tensorflow as tf

from opwright.keras import LSTM  # in place of keras.layers

print(LSTM(64)(tf.random.normal([32, 100, 16])).shape)  # (32, 64)
