// The official JavaScript SDK, unmodified, against the running system with OpenCode behind it.
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { admin, client, closeAll, cuttable, login, password, person, say, stream, url, watch } from "./client.mjs";

const bash = (command) => `@@call bash ${JSON.stringify({ command, description: "test" })}\n@@next\n@@say all done`;
const text = (message) => (message.parts ?? []).filter((p) => p.type === "text").map((p) => p.text).join("");

afterEach(closeAll);

test("log in, refresh, and be refused", async () => {
  const pb = client();
  const methods = await pb.collection("users").listAuthMethods();
  assert.equal(methods.password.enabled, true);
  const auth = await pb.collection("users").authWithPassword(admin.email, admin.password);
  assert.equal(auth.record.email, admin.email);
  assert.equal(auth.record.role, "admin");
  assert.equal(auth.record.collectionName, "users");
  assert.ok(pb.authStore.isValid);
  const again = await pb.collection("users").authRefresh();
  assert.equal(again.record.id, auth.record.id);
  assert.ok(pb.authStore.isValid);

  const root = client();
  const su = await root.collection("_superusers").authWithPassword(admin.email, admin.password);
  assert.equal(su.record.collectionName, "_superusers");
  assert.equal((await root.collections.getOne("chats")).name, "chats");

  await assert.rejects(client().collection("users").authWithPassword(admin.email, "wrong"), { status: 400 });
  await assert.rejects(client().collection("chats").getList(), { status: 401 });
  const user = await person("plain");
  await assert.rejects(client().collection("_superusers").authWithPassword(user.authStore.record.email, password), { status: 400 });
  const health = await pb.health.check();
  assert.equal(health.code, 200);
});

test("a chat from the first message to the approved command, over realtime", async () => {
  const pb = await person("ada");
  const chats = await watch(pb, "chats"), messages = await watch(pb, "messages"), permissions = await watch(pb, "permissions");
  const chat = await pb.collection("chats").create({ title: "PocketCoder Main", user: pb.authStore.record.id, agent: "" });
  assert.equal(chat.user, pb.authStore.record.id);
  assert.equal(chat.turn, "user");
  await chats.until("the chat is created", (e) => e.action === "create" && e.record.id === chat.id);
  const hot = stream();
  await pb.realtime.subscribe(`chats:${chat.id}`, hot.push);
  await say(pb, chat.id, "@@say ready"); // a hot stream that begins during a call shows no change of the call's status
  await hot.until("that the hot stream has begun", (e) => e.event === "message_complete");

  const message = await say(pb, chat.id, bash("echo appr''oved"));
  assert.equal(message.role, "user");
  const asked = await permissions.until("the ask", (e) => e.record.chat === chat.id && e.record.status === "draft");
  assert.equal(asked.record.permission, "bash");
  assert.equal(asked.record.metadata.command, "echo appr''oved");
  assert.ok(Array.isArray(asked.record.patterns));
  await hot.until("the call", (e) => e.event === "tool_status" && e.data.tool === "bash");
  await hot.until("the message so far", (e) => e.event === "message_snapshot" && e.data.parts.some((p) => p.tool === "bash"));

  const decided = await pb.collection("permissions").update(asked.record.id, { status: "authorized" });
  assert.equal(decided.status, "authorized");
  assert.equal(decided.approved_by, pb.authStore.record.id);
  assert.ok(decided.approved_at);
  await pb.collection("permissions").update(asked.record.id, { status: "authorized" }); // says what is true
  await assert.rejects(pb.collection("permissions").update(asked.record.id, { status: "denied" }), (err) => {
    assert.equal(err.status, 400);
    assert.ok(err.response.data.status.message);
    return true;
  });
  await assert.rejects(pb.collection("permissions").create({ id: asked.record.id, chat: chat.id, permission: "bash", status: "authorized" }), { status: 400 });

  const answer = await messages.until("the answer", (e) => e.record.role === "assistant" && e.record.engine_message_status === "completed" && text(e.record) === "all done");
  assert.equal(answer.record.chat, chat.id);
  const complete = await hot.until("the hot stream's end", (e) => e.event === "message_complete" && e.data.messageID === answer.record.ai_engine_message_id);
  assert.equal(complete.data.parts.some((p) => p.text === "all done"), true);
  await chats.until("the turn is the person's again", (e) => e.record.id === chat.id && e.record.turn === "user" && e.record.preview === "all done");

  const runs = await pb.collection("executions").getFullList({ filter: pb.filter("chat = {:chat}", { chat: chat.id }), expand: "command,permission,chat.user" });
  assert.equal(runs.length, 1);
  assert.equal(runs[0].outputs.stdout.text, "approved\n");
  assert.equal(runs[0].expand.command.command, "echo appr''oved");
  assert.equal(runs[0].expand.permission.id, asked.record.id);
  assert.equal(runs[0].expand.chat.expand.user.id, pb.authStore.record.id);
  const output = await fetch(`${url}/api/executions/${runs[0].id}/output`, { headers: { Authorization: pb.authStore.token } });
  assert.equal(await output.text(), "approved\n");
});

test("deny with a reason that the model reads", async () => {
  const pb = await person("bob");
  const permissions = await watch(pb, "permissions"), messages = await watch(pb, "messages");
  const chat = await pb.collection("chats").create({ title: "deny" });
  await say(pb, chat.id, bash("rm -rf important"));
  const asked = await permissions.until("the ask", (e) => e.record.chat === chat.id && e.record.status === "draft");
  const denied = await pb.collection("permissions").update(asked.record.id, { ...asked.record, synced: false, isNew: false, status: "denied", reason: "not that one" });
  assert.equal(denied.status, "denied");
  const refused = await messages.until("the model is told", (e) => JSON.stringify(e.record.parts ?? "").includes("not that one"));
  assert.equal(refused.record.role, "assistant");
  assert.equal((await pb.collection("executions").getFullList({ filter: `chat="${chat.id}" && status="completed"` })).length, 0);
});

test("answer one question and reject another", async () => {
  const pb = await person("eve");
  const questions = await watch(pb, "questions"), messages = await watch(pb, "messages");
  const script = (word) => `@@call question ${JSON.stringify({ questions: [{ question: `Which ${word}?`, header: word, options: [{ label: "Red", description: "warm" }, { label: "Blue", description: "cold" }] }] })}\n@@next\n@@say thanks for ${word}`;
  const chat = await pb.collection("chats").create({ title: "questions" });
  await say(pb, chat.id, script("colour"));
  const asked = await questions.until("the question", (e) => e.record.chat === chat.id && e.record.status === "asked");
  assert.deepEqual(asked.record.choices, ["Red", "Blue"]);
  const replied = await pb.collection("questions").update(asked.record.id, { reply: "Blue", status: "replied" });
  assert.equal(replied.reply, "Blue");
  await assert.rejects(pb.collection("questions").update(asked.record.id, { reply: "Red", status: "replied" }), { status: 400 });
  await messages.until("the answer", (e) => text(e.record) === "thanks for colour");

  const second = await pb.collection("chats").create({ title: "rejected" });
  await say(pb, second.id, script("shade"));
  const other = await questions.until("the second question", (e) => e.record.chat === second.id && e.record.status === "asked");
  assert.equal((await pb.collection("questions").update(other.record.id, { status: "rejected" })).status, "rejected");
});

test("list, filter, sort, expand, page, pick fields", async () => {
  const pb = await person("list");
  const me = pb.authStore.record.id;
  const made = [];
  for (const title of ["alpha", "beta", "it's \"gamma\"", "delta"]) made.push(await pb.collection("chats").create({ title, tags: "listed" }));
  const all = await pb.collection("chats").getFullList({ sort: "-created" });
  assert.deepEqual(all.map((c) => c.id), made.map((c) => c.id).reverse());
  const page = await pb.collection("chats").getList(2, 3, { sort: "title" });
  assert.deepEqual([page.page, page.perPage, page.totalItems, page.totalPages, page.items.length], [2, 3, 4, 2, 1]);
  const one = await pb.collection("chats").getFirstListItem(pb.filter("title = {:title}", { title: "it's \"gamma\"" }), { expand: "user", fields: "id,title,expand.user.email" });
  assert.deepEqual(one, { id: made[2].id, title: "it's \"gamma\"", expand: { user: { email: pb.authStore.record.email } } });
  assert.equal((await pb.collection("chats").getFullList({ filter: `title ~ "a" && user.id = "${me}" && archived != true` })).length, 4);
  assert.equal((await pb.collection("chats").getList(1, 1, { skipTotal: true })).totalItems, -1);
  for (const name of ["tool_permissions", "proposals", "sops", "sandbox_agents", "devices", "cron_jobs", "ai_agents", "healthchecks"]) {
    await pb.collection(name).getFullList({ sort: "-created" });
  }
  await assert.rejects(pb.collection("chats").getList(1, 30, { filter: "nonsense (" }), { status: 400 });

  const renamed = await pb.collection("chats").update(made[0].id, { title: "renamed", archived: true });
  assert.deepEqual([renamed.title, renamed.archived], ["renamed", true]);
  assert.ok(renamed.updated > made[0].updated);
  await pb.collection("chats").delete(made[1].id);
  await assert.rejects(pb.collection("chats").getOne(made[1].id), { status: 404 });

  const batch = pb.createBatch();
  batch.collection("chats").create({ id: "batch0000000001", title: "one" });
  batch.collection("messages").create({ chat: made[3].id, role: "user", parts: [{ type: "text", text: "@@say batched" }] });
  batch.collection("chats").update(made[2].id, { title: "two" });
  const answers = await batch.send();
  assert.deepEqual(answers.map((a) => a.status), [200, 200, 200]);
  assert.equal(answers[2].body.title, "two");
  const bad = pb.createBatch();
  bad.collection("chats").create({ id: "batch0000000002", title: "never" });
  bad.collection("chats").update("nosuchchat00000", { title: "x" });
  await assert.rejects(bad.send(), { status: 400 });
  await assert.rejects(pb.collection("chats").getOne("batch0000000002"), { status: 404 });
});

test("what happened while the connection was gone arrives after it is back", async () => {
  const line = await cuttable();
  const pb = await person("gap", "user", line.url);
  const direct = client();
  direct.authStore.save(pb.authStore.token, pb.authStore.record);
  const chat = await pb.collection("chats").create({ title: "before" });
  const chats = await watch(pb, "chats"), messages = await watch(pb, "messages"), only = await watch(pb, "chats", chat.id);
  await direct.collection("chats").update(chat.id, { title: "seen live" });
  await chats.until("the change that is seen live", (e) => e.record.title === "seen live");

  line.cut();
  await direct.collection("chats").update(chat.id, { title: "in the gap" });
  const created = await direct.collection("chats").create({ title: "made in the gap" });
  await direct.collection("chats").delete((await direct.collection("chats").create({ title: "gone" })).id);
  await say(direct, chat.id, "@@say said in the gap");
  await new Promise((resolve) => { // until the answer is there, so that it is in the gap as a whole
    const poll = setInterval(async () => {
      const rows = await direct.collection("messages").getFullList({ filter: `chat="${chat.id}" && engine_message_status="completed"` });
      if (rows.length > 0) { clearInterval(poll); resolve(); }
    }, 100);
  });
  line.mend();

  await chats.until("the rename", (e) => e.record.title === "in the gap");
  await only.until("the rename, by id", (e) => e.record.title === "in the gap");
  await chats.until("the new chat", (e) => e.action === "create" && e.record.id === created.id);
  await messages.until("the answer", (e) => text(e.record) === "said in the gap" && e.record.engine_message_status === "completed");
  await direct.collection("chats").update(chat.id, { title: "live again" });
  await chats.until("what comes after", (e) => e.record.title === "live again");
});

test("two people do not see each other", async () => {
  const one = await person("one"), two = await person("two");
  const chats = await watch(two, "chats"), messages = await watch(two, "messages"), permissions = await watch(two, "permissions");
  const chat = await one.collection("chats").create({ title: "private" });
  const byID = await watch(two, "chats", chat.id);
  const hot = stream();
  await two.realtime.subscribe(`chats:${chat.id}`, hot.push);
  const mine = await watch(one, "permissions");
  await say(one, chat.id, bash("echo private"));
  const asked = await mine.until("the ask", (e) => e.record.status === "draft");

  await assert.rejects(two.collection("chats").getOne(chat.id), { status: 404 });
  await assert.rejects(two.collection("chats").update(chat.id, { title: "mine" }), { status: 404 });
  await assert.rejects(two.collection("chats").delete(chat.id), { status: 404 });
  await assert.rejects(two.collection("permissions").update(asked.record.id, { status: "authorized" }), { status: 404 });
  await assert.rejects(say(two, chat.id, "@@say intruder"), { status: 400 });
  for (const name of ["chats", "messages", "permissions", "executions", "commands", "usage"]) {
    assert.equal((await two.collection(name).getFullList()).length, 0, name);
  }
  assert.equal((await two.collection("users").getFullList()).length, 1);
  await one.collection("permissions").update(asked.record.id, { status: "denied" });

  const own = await two.collection("chats").create({ title: "own" }); // what comes after everything above
  await chats.until("the own chat", (e) => e.record.id === own.id);
  assert.deepEqual(chats.seen.filter((e) => e.record.id !== own.id), []);
  assert.deepEqual([messages.seen, permissions.seen, byID.seen, hot.seen], [[], [], [], []]);
});

test("a session that is ended ends everything it can do", async () => {
  const pb = await person("ended");
  const chats = await watch(pb, "chats");
  const chat = await pb.collection("chats").create({ title: "x" });
  await chats.until("the chat", (e) => e.record.id === chat.id);
  const closed = new Promise((resolve) => { pb.realtime.onDisconnect = resolve; });
  const [session] = await pb.send("/api/pocketcoder/sessions", {});
  assert.equal(session.current, true);
  await pb.send(`/api/pocketcoder/sessions/${session.id}`, { method: "DELETE" });
  await closed;
  await assert.rejects(pb.collection("chats").getList(), { status: 401 });
});
