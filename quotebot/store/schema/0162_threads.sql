-- What is said in a quote's thread is about that quote: found by the ts of its card.

CREATE INDEX quotes_thread ON quotes (thread_ts) WHERE thread_ts IS NOT NULL;
