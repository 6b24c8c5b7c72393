-- Pages of other sites must not read this one under a name of their own that leads to this machine.
SELECT 'redirect' AS component, 'about:blank' AS link
WHERE coalesce(sqlpage.header('host'), '') NOT IN ('127.0.0.1:8080', 'localhost:8080');

SELECT 'shell' AS component, 'PocketCoder' AS title, '/' AS link,
  json('[{"title":"Chats","link":"/chats.sql"},{"title":"Requests","link":"/requests.sql"},{"title":"Commands","link":"/commands.sql"}]') AS menu_item;

SELECT 'chart' AS component, 'Decisions in 30 days' AS title, 'bar' AS type, TRUE AS stacked, TRUE AS time;
SELECT substr(created, 1, 10) AS x, count(*) AS y,
  CASE WHEN status = 'draft' THEN 'pending' WHEN decided_by LIKE 'user:%' THEN status || ' by a person' ELSE status || ' by a rule' END AS series
FROM permissions WHERE NOT removed AND created >= strftime('%Y-%m-%d', 'now', '-29 days')
GROUP BY 1, 3 ORDER BY 1;

SELECT 'title' AS component, 'The newest 200 requests' AS contents, 2 AS level;
SELECT 'table' AS component, TRUE AS sort, TRUE AS search;
SELECT permissions.created AS "Asked", chats.title AS "Chat", permissions.permission AS "Type",
  permissions.message AS "Request", permissions.status AS "Status", permissions.decided_by AS "Decided by",
  permissions.rule AS "Rule", permissions.reason AS "Reason"
FROM permissions LEFT JOIN chats ON chats.id = permissions.chat
WHERE NOT permissions.removed ORDER BY permissions.created DESC, permissions.first_seq DESC LIMIT 200;
