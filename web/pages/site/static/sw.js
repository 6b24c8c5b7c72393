// The service worker of the web app. The server writes its settings before this text: the version, the files to store, the headers
// that name the account of a page and the deadline of a decision, and texts.
//
// Pages and files come from the network. What is stored is shown only if the network fails or keeps silent. Only pages that a
// person reads are stored, of one account at a time; never a stream, an answer of the API, a login or a setup.
"use strict";

const files = "files-" + settings.version;
const pagesOf = "pages-"; // followed by the account
const maxPages = 30;
const patience = 8000; // for an answer that a stored page or the queue can stand in for, in ms
const buttonPatience = 25000; // for the answer to a button of a notification, which nothing stands in for

const storable = /^\/(chats\/[^/]+(\/changes)?|requests(\/[^/]+)?)?$/;
const entrances = ["/login", "/setup"];
const endings = /^\/(logout|account\/logins\/end)$/;
const decidable = /^\/(requests|chats\/[^/]+\/(requests|questions)\/[^/]+)$/;

self.addEventListener("install", (event) => event.waitUntil(install()));
self.addEventListener("activate", (event) => event.waitUntil(activate()));

async function install() {
  const cache = await caches.open(files);
  await cache.addAll(settings.files.map((path) => new Request(path, { cache: "reload" })));
  await self.skipWaiting();
}

async function activate() {
  await deleteCaches((name) => name.startsWith("files-") && name !== files);
  await self.clients.claim();
}

async function deleteCaches(match) {
  const names = await caches.keys();
  await Promise.all(names.filter(match).map((name) => caches.delete(name)));
}

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (origin !== location.origin || pathname.startsWith("/api/")) {
    return;
  }
  if (request.mode === "navigate" && request.method === "GET") {
    event.respondWith(page(event));
  } else if (request.mode === "navigate" && endings.test(pathname)) {
    event.waitUntil(unsubscribe());
  } else if (request.mode !== "navigate" && request.method === "POST" && decidable.test(pathname)) {
    event.respondWith(decide(request));
  } else if (settings.files.includes(pathname)) {
    event.respondWith(file(request));
  }
});

// within returns the answer of the network. It throws if there is none. The request goes on, so it must change nothing.
async function within(time, request) {
  const silence = new Promise((_, reject) => setTimeout(reject, time, new Error("no answer")));
  return checkServed(await Promise.race([fetch(request), silence]));
}

// checkServed returns an answer, and throws if it says that the server cannot be reached or is not ready.
function checkServed(answer) {
  if ([502, 503, 504].includes(answer.status)) {
    throw new Error(answer.statusText);
  }
  return answer;
}

async function file(request) {
  const stored = await caches.match(request.url, { cacheName: files });
  return stored ? within(patience, request).catch(() => stored) : fetch(request);
}

// Pages

let clearings = 0; // a page that was asked for before one is not stored after it
const storedPages = new Map(); // when the page of a client was stored

async function page(event) {
  const before = clearings;
  const stored = await caches.match(event.request.url);
  try {
    const answer = await (stored ? within(patience, event.request) : fetch(event.request));
    await checkAccount(answer);
    event.waitUntil(store(event.request.url, answer.clone(), before));
    return answer;
  } catch {
    storedPages.set(event.resultingClientId, stored?.headers.get("Date"));
    return stored ?? caches.match("/offline");
  }
}

// checkAccount deletes what belongs to another account than that of an answer.
async function checkAccount(answer) {
  const account = answer.headers.get(settings.header);
  if (account) {
    await deleteCaches((name) => name.startsWith(pagesOf) && name !== pagesOf + account);
    await forgetDecisions((d) => d.account !== account);
  } else if (answer.ok && entrances.includes(new URL(answer.url).pathname)) {
    clearings++;
    await deleteCaches((name) => name.startsWith(pagesOf));
  }
}

async function store(url, answer, before) {
  const { pathname, search } = new URL(url);
  const account = answer.headers.get(settings.header);
  if (!account || answer.status !== 200 || answer.redirected || search !== "" || !storable.test(pathname)) {
    return;
  }
  const cache = await caches.open(pagesOf + account);
  await cache.delete(url); // the page read last is the last one
  await cache.put(url, answer);
  const urls = await cache.keys();
  await Promise.all(urls.slice(0, -maxPages).map((old) => cache.delete(old)));
  if (clearings !== before) {
    await caches.delete(pagesOf + account);
  }
}

// refresh stores a page as it is now: one that is open has changed since it was loaded.
async function refresh(url) {
  const before = clearings;
  const answer = await fetch(url, { headers: { Accept: "text/html" } });
  await checkAccount(answer);
  await store(url, answer, before);
}

async function account() {
  const names = await caches.keys();
  return names.find((name) => name.startsWith(pagesOf))?.slice(pagesOf.length);
}

// Decisions

const opened = new Promise((resolve, reject) => {
  const opening = indexedDB.open("decisions", 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore("decisions", { keyPath: "id", autoIncrement: true });
  opening.onsuccess = () => resolve(opening.result);
  opening.onerror = () => reject(opening.error);
});

// inQueue does one operation of IndexedDB in the queue of decisions.
async function inQueue(operation) {
  const queue = (await opened).transaction("decisions", "readwrite").objectStore("decisions");
  return new Promise((resolve, reject) => {
    const request = operation(queue);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

const decisions = () => inQueue((queue) => queue.getAll());

async function forgetDecisions(match) {
  for (const d of (await decisions()).filter(match)) {
    await inQueue((queue) => queue.delete(d.id));
  }
}

// change replaces a decision in the queue with the result of next, or deletes it if the result is undefined. It returns the result. If
// the queue lacks the decision, it does nothing. It is one transaction, so that sending and taking back do not undo each other.
async function change(id, next) {
  const queue = (await opened).transaction("decisions", "readwrite").objectStore("decisions");
  return new Promise((resolve, reject) => {
    const reading = queue.get(id);
    reading.onerror = () => reject(reading.error);
    reading.onsuccess = () => {
      const changed = reading.result && next(reading.result);
      const writing = changed ? queue.put(changed) : queue.delete(id);
      writing.onerror = () => reject(writing.error);
      writing.onsuccess = () => resolve(changed);
    };
  });
}

const attempts = new Map(); // of the decisions that are being sent, by id: what ends the attempt

// decide sends a decision. If the server does not answer, the decision waits, and the page is told that it was accepted.
async function decide(request) {
  const decision = { path: new URL(request.url).pathname, body: await request.clone().text(), account: await account() };
  if (!decision.account) {
    return fetch(request);
  }
  decision.id = await inQueue((queue) => queue.add(decision));
  const answer = await attempt(decision);
  if (answer) {
    await change(decision.id, () => undefined);
    return answer;
  }
  await self.registration.sync?.register("decisions").catch(() => {}); // not every browser, and not in a private window
  await tell();
  return new Response(null, { status: 202, headers: { Location: new URL(request.referrer).pathname } });
}

// attempt sends a decision once, and returns the answer, null if there is none. A decision that came too late was not carried out.
async function attempt(d) {
  const headers = { Accept: "text/plain", "Content-Type": "application/x-www-form-urlencoded", [settings.header]: d.account };
  const ending = new AbortController();
  attempts.set(d.id, ending);
  try {
    const answer = await post(patience, d.path, { headers, body: d.body }, ending, async (until) => {
      const now = await change(d.id, (now) => (now.takenBack ? now : { ...now, until }));
      if (!now || now.takenBack) {
        throw new Error("taken back");
      }
    });
    return answer.status === 412 ? null : answer;
  } catch {
    return null;
  } finally {
    attempts.delete(d.id);
  }
}

// post sends a form, and gives up after a time. The server refuses the form after that, also if it is still on its way. beforeSent
// is called with that moment, by the server's clock: the clock of a phone may be wrong. post throws if the server does not answer.
async function post(time, path, request, ending = new AbortController(), beforeSent = () => {}) {
  const { signal } = ending;
  const timer = setTimeout(() => ending.abort(), time);
  try {
    const until = (await serverTime(signal)) + 1000 + time; // serverTime was rounded down
    await beforeSent(until);
    const headers = { ...request.headers, [settings.deadline]: String(until) };
    return checkServed(await fetch(path, { ...request, method: "POST", headers, signal }));
  } finally {
    clearTimeout(timer);
  }
}

// serverTime returns the server's time in ms, rounded down to a second.
async function serverTime(signal) {
  const answer = checkServed(await fetch("/offline", { method: "HEAD", cache: "no-store", signal }));
  return Date.parse(answer.headers.get("Date"));
}

// takeBack deletes a decision. If it was sent and can still be carried out, it stays, so that the page says so.
async function takeBack(id) {
  await change(id, (d) => (d.refused === undefined && d.until ? { ...d, takenBack: true } : undefined));
  attempts.get(id)?.abort();
}

let sending = null;
const sendDecisions = () => (sending ??= sendEach().finally(() => (sending = null)));

async function sendEach() {
  const current = await account();
  for (const { id } of await decisions()) {
    const d = await inQueue((queue) => queue.get(id)); // it may have been taken back meanwhile
    if (d && d.refused === undefined && d.account === current && !attempts.has(id) && !(await (d.takenBack ? settle(d) : sendOne(d)))) {
      break;
    }
  }
  await tell();
}

// settle reports whether the server answers. Once its clock has passed the deadline of a decision that was taken back, the decision
// was carried out before or never is, and the page shows which.
async function settle(d) {
  const now = await serverTime(AbortSignal.timeout(patience)).catch(() => null);
  if (now > d.until) {
    await change(d.id, () => undefined);
  }
  return now !== null;
}

// sendOne reports whether the server has answered a decision. One that it refuses stays, with the reason.
async function sendOne(d) {
  const answer = await attempt(d);
  if (answer === null || answer.status === 401 || answer.status === 429) {
    return false;
  }
  const refused = answer.ok ? null : await answer.text();
  await change(d.id, (now) => (answer.ok ? undefined : { ...now, refused }));
  return true;
}

self.addEventListener("sync", (event) => event.waitUntil(sendInBackground()));

// sendInBackground fails while a decision waits, so that the browser tries again.
async function sendInBackground() {
  await sendDecisions();
  if ((await decisions()).some((d) => d.refused === undefined)) {
    throw new Error("decisions wait");
  }
}

// tell shows all open pages which decisions wait or were refused.
async function tell() {
  const list = await decisions();
  for (const client of await self.clients.matchAll({ type: "window" })) {
    client.postMessage({ decisions: list, storedAt: storedPages.get(client.id) });
  }
}

self.addEventListener("message", (event) => event.waitUntil(receive(event.data)));

async function receive({ claim, forget, store }) {
  if (claim) {
    await self.clients.claim();
  }
  if (forget) {
    await takeBack(forget);
  }
  if (store) {
    await refresh(store).catch(() => {}); // the next visit stores it
  }
  await tell();
  await sendDecisions();
}

// Notifications

self.addEventListener("push", (event) => event.waitUntil(notify(event.data.json())));
self.addEventListener("notificationclick", (event) => event.waitUntil(act(event.notification, event.action)));

// notify shows a message of bridge/push. A browser demands that each message is shown.
async function notify({ id, title, message, type, click, done, actions = [] }) {
  const waits = type === "permission" || type === "question";
  await self.registration.showNotification(title, {
    body: done ? settings.texts.decided : message,
    tag: id,
    renotify: !done,
    silent: Boolean(done),
    requireInteraction: waits && !done,
    icon: "/static/icon-192.png",
    actions: actions.map(({ action, title }) => ({ action, title })),
    data: { click: pathOf(click), urls: Object.fromEntries(actions.map(({ action, url }) => [action, pathOf(url)])) },
  });
}

// pathOf returns the path of an address on our own server: a message leads nowhere else.
function pathOf(address) {
  const { pathname, search } = new URL(address, location.origin);
  return pathname + search;
}

// act does what a button says, once, and shows the result in place of the notification: a close could come after that, and
// remove it. A tap elsewhere opens the page.
async function act(notification, action) {
  const { click, urls } = notification.data;
  if (!urls[action]) {
    notification.close();
    await open(click);
    return;
  }
  const answer = await post(buttonPatience, urls[action], {}).catch(() => null);
  const unsent = answer === null || answer.status === 412;
  let text = settings.texts.refused;
  if (unsent) {
    text = settings.texts.unsent;
  } else if (answer.ok) {
    text = settings.texts[action === "approve" ? "approved" : "denied"];
  }
  await self.registration.showNotification(notification.title, {
    body: text,
    tag: notification.tag,
    silent: Boolean(answer?.ok),
    icon: notification.icon,
    actions: unsent ? notification.actions : [],
    data: { click, urls: unsent ? urls : {} },
  });
}

async function open(path) {
  const windows = await self.clients.matchAll({ type: "window" });
  const there = windows.find((client) => new URL(client.url).pathname === path);
  await (there ? there.focus() : self.clients.openWindow(path));
}

// unsubscribe ends the notifications of an account that logs out of this browser.
async function unsubscribe() {
  const subscription = await self.registration.pushManager?.getSubscription();
  await subscription?.unsubscribe();
}
