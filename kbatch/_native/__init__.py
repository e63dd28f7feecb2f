"""The data plane: native modules that work per record and per byte. Missing here means not built."""
