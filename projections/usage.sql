-- What was spent, by chat and model. It is a view: every assistant message counts once, with its latest figures, and a
-- removed one stays spent. What a fork copied was spent by the chat it was copied from.
CREATE VIEW usage AS
SELECT chat || '.' || provider || '.' || model AS id, chat, provider, model, count(*) AS messages,
  sum(cost) AS cost, sum(tokens_input) AS tokens_input, sum(tokens_output) AS tokens_output, sum(tokens_reasoning) AS tokens_reasoning,
  sum(tokens_cache_read) AS tokens_cache_read, sum(tokens_cache_write) AS tokens_cache_write,
  min(created) AS created, max(updated) AS updated,
  min(first_seq) AS first_seq, max(last_seq) AS last_seq, 0 AS removed
FROM messages WHERE role = 'assistant' AND NOT copied GROUP BY chat, provider, model;
