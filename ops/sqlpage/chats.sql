-- Pages of other sites must not read this one under a name of their own that leads to this machine.
SELECT 'redirect' AS component, 'about:blank' AS link
WHERE coalesce(sqlpage.header('host'), '') NOT IN ('127.0.0.1:8080', 'localhost:8080');

SELECT 'shell' AS component, 'PocketCoder' AS title, '/' AS link,
  json('[{"title":"Chats","link":"/chats.sql"},{"title":"Requests","link":"/requests.sql"},{"title":"Commands","link":"/commands.sql"}]') AS menu_item;

SELECT 'title' AS component, 'The 200 chats that were active last' AS contents;
SELECT 'table' AS component, TRUE AS sort, TRUE AS search;
SELECT chats.title AS "Title", coalesce(users.email, 'nobody') AS "Person", chats.last_active AS "Last active",
  (SELECT count(*) FROM messages WHERE messages.chat = chats.id AND NOT messages.removed) AS "Messages",
  (SELECT count(*) FROM permissions WHERE permissions.chat = chats.id AND NOT permissions.removed) AS "Requests",
  (SELECT count(*) FROM executions WHERE executions.chat = chats.id AND NOT executions.removed) AS "Commands",
  (SELECT round(coalesce(sum(cost), 0), 4) FROM usage WHERE usage.chat = chats.id AND NOT usage.removed) AS "Cost"
FROM chats LEFT JOIN users ON users.id = chats.user
WHERE NOT chats.removed ORDER BY chats.last_active DESC LIMIT 200;
