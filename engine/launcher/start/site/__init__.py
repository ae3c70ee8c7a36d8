"""The only folder of Lockstep that a script's Python searches: see ``sitecustomize``."""
