"""All SQL: tables, migrations, one writer."""
