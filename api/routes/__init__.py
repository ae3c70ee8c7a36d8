"""Routes, one module per resource.

A handler reads the request, calls one or two functions of ``storage`` and returns the response.
"""
