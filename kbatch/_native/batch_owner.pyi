from kbatch._native.buffer_memory import BufferMemory

class ListedBatch:
    created_ns: int

class BatchOwner:
    memory: BufferMemory
    batch_size: int
    linger_ns: int
