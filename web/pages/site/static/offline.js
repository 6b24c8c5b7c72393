// What a page shows of the service worker (sw.js): decisions that could not be sent, when a stored page is from, and the list of
// stored pages. Without a service worker, which needs TLS or loopback, nothing of it happens.
"use strict";

const serviceWorker = navigator.serviceWorker;
const tellWorker = (message) => serviceWorker?.controller?.postMessage(message);
const loaded = page?.dataset.live;

let decisions = [];
let storedAt = null;

function receiveState(state) {
  decisions = state.decisions;
  showDecisions();
  if (state.storedAt && storedAt === null) {
    showStoredAt(state.storedAt);
  }
}

// A page from the store says so at once. Once it is connected, app.js hides that, and brings the page up to date.
function showStoredAt(date) {
  storedAt = new Date(date);
  const time = byID("stored-at").querySelector("time");
  time.dateTime = storedAt.toISOString();
  showLocalTimes();
  byID("stored-at").hidden = false;
  byID("offline").hidden = false;
}

// Decisions

// showDecisions shows each decision on its cards, or above the page if it does not show them.
function showDecisions() {
  const notes = new Set();
  for (const d of decisions) {
    const cards = requestsOf(d).flatMap((id) => [byID("r-" + id), byID("q-" + id)]).filter(Boolean);
    for (const place of cards.length > 0 ? cards : [document.querySelector("main")]) {
      notes.add(noteOf(d, place));
    }
  }
  for (const note of document.querySelectorAll(".unsent-decision")) {
    if (!notes.has(note)) {
      note.remove();
    }
  }
}

function requestsOf({ path, body }) {
  return path === "/requests" ? new URLSearchParams(body).getAll("request") : [path.split("/").pop()];
}

// noteOf returns the note about a decision in a place. It adds the note if it is not there.
function noteOf(d, place) {
  const kind = d.refused !== undefined ? "refused" : d.takenBack ? "taken-back" : "waiting";
  const there = [...place.children].find((note) => note.matches(".unsent-decision." + kind) && note.dataset.id === String(d.id));
  if (there) {
    return there;
  }
  const note = byID("decision-" + kind).content.firstElementChild.cloneNode(true);
  note.dataset.id = d.id;
  note.querySelector("b").textContent = labelOf(d);
  note.querySelector("button")?.addEventListener("click", () => tellWorker({ forget: d.id }));
  if (kind === "refused") {
    note.querySelector(".reason").textContent = d.refused;
  }
  if (!place.matches(".card")) {
    const link = note.querySelector("a");
    link.hidden = false;
    link.href = d.path.includes("/questions/") ? d.path.split("/questions/")[0] : "/requests/" + encodeURIComponent(requestsOf(d)[0]);
    place.prepend(note);
  } else {
    place.append(note);
  }
  return note;
}

// labelOf names a decision as its button does.
function labelOf({ body }) {
  const form = new URLSearchParams(body);
  const kind = form.has("edited") ? "edited" : form.has("reason") ? "explained" : form.get("decision") ?? "answer";
  return byID("decision-waiting").dataset[kind];
}

// Stored pages

// showStored lists the stored pages, the one read last first.
async function showStored() {
  const names = (await caches.keys()).filter((name) => name.startsWith("pages-"));
  for (const name of names) {
    const cache = await caches.open(name);
    for (const request of await cache.keys()) {
      const answer = await cache.match(request);
      byID("stored-pages").prepend(rowOf(request.url, answer.headers, await answer.text()));
    }
  }
  const any = byID("stored-pages").childElementCount > 0;
  byID("read-last").hidden = byID("stored-pages").hidden = !any;
  byID("nothing-stored").hidden = any;
  showLocalTimes();
}

function rowOf(url, headers, html) {
  const title = new DOMParser().parseFromString(parser.createHTML(html), "text/html").title;
  const row = byID("stored-row").content.firstElementChild.cloneNode(true);
  row.querySelector("a").href = new URL(url).pathname;
  row.querySelector(".title").textContent = title.replace(byID("stored-pages").dataset.product, "");
  row.querySelector("time").dateTime = new Date(headers.get("Date")).toISOString();
  return row;
}

// storePage stores the page as it is by now.
function storePage() {
  tellWorker({ store: location.origin + location.pathname });
}

// A page that was loaded before a new version loads itself again when nobody looks and nothing is typed.
let outdated = false;
let hadWorker = serviceWorker?.controller;

function onNewWorker() {
  storePage();
  outdated = Boolean(hadWorker);
  hadWorker = true;
  renew();
}

function renew() {
  const typed = [...document.querySelectorAll("input, textarea, select")].some(changedByPerson);
  if (outdated && document.hidden && !typed) {
    location.reload();
  }
}

if (serviceWorker) {
  serviceWorker.register(parser.createScriptURL("")).catch(() => {}); // the browser may forbid it
  // The worker does not control a page that was requested before it was active, or reloaded without the cache.
  serviceWorker.ready.then(({ active }) => {
    if (!serviceWorker.controller) {
      active.postMessage({ claim: true });
    }
  });
  serviceWorker.addEventListener("message", (event) => receiveState(event.data));
  serviceWorker.addEventListener("controllerchange", onNewWorker);
  serviceWorker.startMessages();
  document.addEventListener("updated", showDecisions);
  document.addEventListener("visibilitychange", renew);
  document.addEventListener("visibilitychange", () => document.hidden && page?.dataset.live !== loaded && storePage());
  window.addEventListener("online", () => tellWorker({}));
  window.addEventListener("pageshow", () => tellWorker({}));
  setInterval(() => document.hidden || decisions.every((d) => "refused" in d) || tellWorker({}), 5000);
  if (byID("stored-pages")) {
    showStored();
    window.addEventListener("online", () => location.reload());
  }
}
