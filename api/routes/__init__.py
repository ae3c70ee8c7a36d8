"""The addresses, one module per noun. Each handler reads, calls one or two functions of ``storage``, and answers."""
