# What all that give out their memory as a buffer of single bytes say of it.

cdef inline void fill_view(Py_buffer *view, owner, void *data, Py_ssize_t *size, bint readonly):
    """`size` stays where it is as long as the view does."""
    view.buf = data
    view.obj = owner
    view.len = size[0]
    view.readonly = readonly
    view.itemsize = 1
    view.format = "B"
    view.ndim = 1
    view.shape = size
    view.strides = &view.itemsize
    view.suboffsets = NULL
    view.internal = NULL
