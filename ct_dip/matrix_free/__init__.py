"""The same model as in exact inference, with J and A touched only through products: for large problems."""
