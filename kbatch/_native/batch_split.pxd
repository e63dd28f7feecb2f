from kbatch._native.producer_batch cimport ProducerBatch

cdef list split_batch(ProducerBatch batch)
