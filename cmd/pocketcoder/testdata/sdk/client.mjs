// What the scenarios share: clients of the unmodified SDK, a proxy whose connections can be cut, and waiting for what
// realtime brings.
import net from "node:net";
import { EventSource } from "eventsource";
import PocketBase from "pocketbase";

globalThis.EventSource = EventSource; // Node 20 has none; the SDK asks for it

export const url = process.env.POCKETCODER_URL;
export const admin = { email: process.env.ADMIN_EMAIL, password: process.env.ADMIN_PASSWORD };
export const password = "a long enough password";

// open holds the functions that close a test's connections. A connection that stays open keeps Node from ending, also
// when the test fails.
const open = [];

export function closeAll() {
  for (const close of open.splice(0)) close();
}

export function client(base = url) {
  const pb = new PocketBase(base);
  pb.autoCancellation(false);
  open.push(() => pb.realtime.unsubscribe());
  return pb;
}

export async function login(email, pass = password, base = url) {
  const pb = client(base);
  await pb.collection("users").authWithPassword(email, pass);
  return pb;
}

// person makes an account and logs it in.
export async function person(name, role = "user", base = url) {
  const root = await login(admin.email, admin.password);
  const email = `${name}-${Math.random().toString(36).slice(2)}@example.org`;
  await root.collection("users").create({ email, password, passwordConfirm: password, name, role });
  return login(email, password, base);
}

// stream collects what a subscription brings; until waits for the first that is wanted.
export function stream() {
  const seen = [];
  let wake = () => {};
  const push = (event) => { seen.push(event); wake(); };
  async function until(what, wanted, ms = 60_000) {
    const deadline = Date.now() + ms;
    for (;;) {
      const found = seen.find(wanted);
      if (found) return found;
      const left = deadline - Date.now();
      if (left <= 0) throw new Error(`not within ${ms} ms: ${what}; seen: ${JSON.stringify(seen).slice(0, 2000)}`);
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, left);
        wake = () => { clearTimeout(timer); resolve(); };
      });
    }
  }
  return { seen, push, until };
}

// cuttable listens in front of the server. cut() breaks every connection and lets none in until mend().
export async function cuttable() {
  const target = new URL(url);
  const sockets = new Set();
  let connected = true;
  const server = net.createServer((socket) => {
    socket.on("error", () => {});
    if (!connected) return socket.destroy();
    const upstream = net.connect(Number(target.port), target.hostname);
    upstream.on("error", () => socket.destroy());
    for (const s of [socket, upstream]) { sockets.add(s); s.on("close", () => { sockets.delete(s); socket.destroy(); upstream.destroy(); }); }
    socket.pipe(upstream).pipe(socket);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const cut = () => { connected = false; for (const s of sockets) s.destroy(); };
  open.push(() => { cut(); server.close(); });
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    cut,
    mend() { connected = true; },
  };
}

// say submits a message: a script of the demo model.
export const say = (pb, chat, text) => pb.collection("messages").create({ chat, role: "user", parts: [{ type: "text", text }] });

// watch subscribes to a collection and collects its events.
export async function watch(pb, collection, topic = "*", options) {
  const s = stream();
  await pb.collection(collection).subscribe(topic, s.push, options);
  return s;
}
