from kbatch._native.batch.buffer_pool import BufferPool

class ListedBatch:
    created_ns: int

class BatchOwner:
    memory: BufferPool
    batch_size: int
    linger_ns: int
