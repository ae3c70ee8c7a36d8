"""Job logic behind the routes: submission, clones, uploads, forecasts and views."""
