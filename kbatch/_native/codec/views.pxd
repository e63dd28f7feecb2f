# The common buffer of single bytes of all types that expose their memory.

cdef inline void fill_view(Py_buffer *view, owner, void *data, Py_ssize_t *size, bint readonly):
    """Fill a view; `size` must stay in place as long as the view."""
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
