"""Runs the migrations on the connection, and inside the transaction, that `app.store.schema` has opened."""

from alembic import context

from app.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
