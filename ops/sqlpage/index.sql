-- Pages of other sites must not read this one under a name of their own that leads to this machine.
SELECT 'redirect' AS component, 'about:blank' AS link
WHERE coalesce(sqlpage.header('host'), '') NOT IN ('127.0.0.1:8080', 'localhost:8080');

SELECT 'shell' AS component, 'PocketCoder' AS title, '/' AS link,
  json('[{"title":"Chats","link":"/chats.sql"},{"title":"Requests","link":"/requests.sql"},{"title":"Commands","link":"/commands.sql"}]') AS menu_item;

SELECT 'big_number' AS component;
SELECT 'Chats' AS title, count(*) AS value FROM chats WHERE NOT removed AND NOT archived;
SELECT 'Pending requests' AS title, (SELECT count(*) FROM waiting_requests) + (SELECT count(*) FROM waiting_questions) AS value;
SELECT 'Running commands' AS title, count(*) AS value FROM executions WHERE status = 'executing';
SELECT 'Cost in 30 days' AS title, printf('%.2f', coalesce(sum(cost), 0)) AS value
FROM messages WHERE role = 'assistant' AND NOT copied AND created >= strftime('%Y-%m-%d', 'now', '-29 days');

SELECT 'chart' AS component, 'Cost per day' AS title, 'bar' AS type, TRUE AS time;
SELECT substr(created, 1, 10) AS x, round(sum(cost), 4) AS y
FROM messages WHERE role = 'assistant' AND NOT copied AND created >= strftime('%Y-%m-%d', 'now', '-29 days')
GROUP BY 1 ORDER BY 1;

SELECT 'title' AS component, 'Spent by model' AS contents, 2 AS level;
SELECT 'table' AS component, TRUE AS sort;
SELECT provider || '/' || model AS "Model", sum(messages) AS "Answers", sum(tokens_input) AS "Tokens in",
  sum(tokens_output) AS "Tokens out", round(sum(cost), 4) AS "Cost"
FROM usage WHERE NOT removed GROUP BY 1 ORDER BY 5 DESC;

SELECT 'title' AS component, 'Spent by person in 30 days' AS contents, 2 AS level;
SELECT 'table' AS component, TRUE AS sort;
SELECT coalesce(users.email, 'nobody') AS "Person", count(*) AS "Answers", round(sum(messages.cost), 4) AS "Cost"
FROM messages JOIN chats ON chats.id = messages.chat LEFT JOIN users ON users.id = chats.user
WHERE messages.role = 'assistant' AND NOT messages.copied AND messages.created >= strftime('%Y-%m-%d', 'now', '-29 days')
GROUP BY 1 ORDER BY 3 DESC;
