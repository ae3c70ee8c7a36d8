"""Python client of the HTTP API.

Imports only ``domain`` of the project. ``lockstep up`` starts the service's programs as processes
(``client.local``); it does not import them.

Not here: the types of answers (``domain.views``) and the validation of specs
(``domain.spec.reading``).
"""
