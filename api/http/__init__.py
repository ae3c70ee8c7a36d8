"""HTTP components: bodies, middleware, ETags, caches, problem documents, streams and OpenAPI."""
