from kbatch._native.batch.producer_batch cimport ProducerBatch

cdef list split_batch(ProducerBatch batch)
