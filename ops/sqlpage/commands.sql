-- Pages of other sites must not read this one under a name of their own that leads to this machine.
SELECT 'redirect' AS component, 'about:blank' AS link
WHERE coalesce(sqlpage.header('host'), '') NOT IN ('127.0.0.1:8080', 'localhost:8080');

SELECT 'shell' AS component, 'PocketCoder' AS title, '/' AS link,
  json('[{"title":"Chats","link":"/chats.sql"},{"title":"Requests","link":"/requests.sql"},{"title":"Commands","link":"/commands.sql"}]') AS menu_item;

SELECT 'title' AS component, 'The newest 200 commands' AS contents;
SELECT 'table' AS component, TRUE AS sort, TRUE AS search;
SELECT executions.created AS "Requested", chats.title AS "Chat", substr(coalesce(commands.command, 'own shell'), 1, 500) AS "Command",
  executions.status AS "Status", executions.exit_code AS "Exit code", executions.duration_ms AS "Milliseconds",
  executions.worker AS "Worker", executions.isolation AS "Isolation"
FROM executions LEFT JOIN commands ON commands.id = executions.command LEFT JOIN chats ON chats.id = executions.chat
WHERE NOT executions.removed ORDER BY executions.position DESC LIMIT 200;

SELECT 'title' AS component, 'The commands that ran most often' AS contents, 2 AS level;
SELECT 'table' AS component, TRUE AS sort;
SELECT substr(command, 1, 500) AS "Command", uses AS "Runs" FROM commands WHERE uses > 0 ORDER BY uses DESC LIMIT 50;
