-- A command replaces at most one dead one, and a dead command is replaced at most once.

CREATE UNIQUE INDEX operations_replaces ON operations (replaces_id) WHERE replaces_id IS NOT NULL;
