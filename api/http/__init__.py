"""HTTP parts: bodies, middleware, ETags, caches, problems, streams and the API's description."""
