/* What Python.h must know of 64-bit Windows, to compile modules for it: the headers of a machine without
 * Windows, with this included first. It has the guard of their own pyconfig.h. Meanings: PC/pyconfig.h. */
#ifndef Py_PYCONFIG_H
#define Py_PYCONFIG_H

#include <io.h>

#define MS_WINDOWS 1
#define MS_WIN32 1
#define MS_WIN64 1
#define NT_THREADS 1
#define HAVE_DECLSPEC_DLL 1
#define Py_ENABLE_SHARED 1
#define PLATFORM "win32"
#define HAVE_LONG_LONG 1
#define HAVE_STDINT_H 1
#define HAVE_STDDEF_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_WCHAR_H 1
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_FLOAT 4
#define SIZEOF_DOUBLE 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_VOID_P 8
#define SIZEOF_WCHAR_T 2
#define SIZEOF_PID_T 4
#define ALIGNOF_MAX_ALIGN_T 8

#endif
