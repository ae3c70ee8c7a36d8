"""The engine: real ranks over Gloo and real launchers, compared with a plain loop."""
