"""Our SDK model classes: requests that any compatible server takes, and a reader for what such servers send."""
