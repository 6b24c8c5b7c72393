// The script of the web app. A page shows its content and sends its forms without it. The script keeps the page up to date from
// its stream (web/pages/site/live.go), and sends forms without leaving the page. It dispatches these events on the document: updating and
// updated (detail: how many entries were added) around a change, connected, and text (detail: {part, text}). See log.js.
"use strict";

const byID = (id) => document.getElementById(id);
const page = document.querySelector("[data-live]");

// The only place where text becomes elements. The server has escaped what is not its own.
const parser = (window.trustedTypes ?? { createPolicy: (_, rules) => rules }).createPolicy("pocketcoder", { createHTML: (html) => html, createScriptURL: () => "/sw.js" });
const elementsOf = (html) => [...new DOMParser().parseFromString(parser.createHTML(html), "text/html").body.children];

// Elements

// A morph leaves alone what the person has typed, chosen or unfolded.
const changedByPerson = (field) =>
  (field.matches("input, textarea") && field.type !== "hidden" && field.value !== field.defaultValue) ||
  (field.matches("input") && field.checked !== field.defaultChecked) ||
  (field.matches("select") && field.selectedIndex !== Math.max(0, [...field.options].findIndex((option) => option.defaultSelected)));
const morphing = {
  callbacks: {
    beforeNodeMorphed: (old) => !(old instanceof Element && changedByPerson(old)),
    beforeAttributeUpdated: (name, element) => !(name === "open" && element.matches("details")),
  },
};

function put(element) {
  const old = byID(element.id);
  const moved = old && element.dataset.order && element.dataset.order !== old.dataset.order;
  if ("removed" in element.dataset) {
    old?.remove();
  } else if (old && !moved) {
    Idiomorph.morph(old, element, morphing);
  } else if (element.dataset.order) {
    old?.remove();
    const next = [...byID("entries").children].find((other) => other.dataset.order > element.dataset.order);
    byID("entries").insertBefore(document.importNode(element, true), next ?? null);
    return moved ? 0 : 1;
  }
  return 0;
}

function update(html) {
  document.dispatchEvent(new Event("updating"));
  const added = elementsOf(html).reduce((n, element) => n + put(element), 0);
  showLocalTimes();
  document.dispatchEvent(new CustomEvent("updated", { detail: added }));
}

// After a person has tapped a card the page stays as it is for a moment, so that a second tap does not hit the card that moves up.
let still = 0; // until when
const held = [];

function receive(html) {
  held.push(html);
  release();
}

function release() {
  const wait = still - Date.now();
  if (wait > 0) {
    setTimeout(release, wait);
    return;
  }
  while (held.length > 0) {
    update(held.shift());
  }
}

function showLocalTimes() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    const today = at.toDateString() === new Date().toDateString();
    time.textContent = at.toLocaleString(undefined, today ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" });
  }
}

// The stream

let stream = null;
let heard = 0;
let failing = null; // timer until the page says that it is out of date
let retry = null;
let pause = 1000; // until the next attempt to connect, in ms

function connect() {
  disconnect();
  if (document.hidden) {
    hideOutdated(); // it connects when it is shown again
    return;
  }
  heard = Date.now();
  failing ??= setTimeout(showOutdated, 3000);
  stream = new EventSource(page.dataset.live);
  stream.onopen = () => document.dispatchEvent(new Event("connected"));
  stream.onmessage = (event) => {
    receive(JSON.parse(event.data));
    page.dataset.live = page.dataset.live.replace(/after=\d+/, "after=" + event.lastEventId);
    onHeard();
  };
  stream.addEventListener("text", (event) => document.dispatchEvent(new CustomEvent("text", { detail: JSON.parse(event.data) })));
  stream.addEventListener("ping", onHeard);
  stream.addEventListener("reload", () => location.reload());
  stream.onerror = () => {
    disconnect();
    retry = setTimeout(connect, pause);
    pause = Math.min(pause * 2, 16000); // the server may be busy, or refuse more pages
  };
}

function disconnect() {
  stream?.close();
  stream = null;
  clearTimeout(retry);
}

function showOutdated() {
  byID("offline").hidden = false;
}

function hideOutdated() {
  clearTimeout(failing);
  failing = null;
  byID("offline").hidden = true;
}

function onHeard() {
  heard = Date.now();
  pause = 1000;
  hideOutdated();
  byID("stored-at").hidden = true; // the page is up to date now
}

// A broken connection can stay silent. The server sends a ping every 5 s.
const maxSilence = 8000;

function reconnectIfSilent() {
  if (stream && Date.now() - heard > maxSilence) {
    showOutdated();
    connect();
  }
}

// Forms

let sending = Promise.resolve(); // one after the other, so that messages arrive in the order in which they were written

async function send(form, button) {
  if ("draft" in form.dataset && !(await prepare(form))) { // files may still be scaled down
    return;
  }
  form.querySelector(":scope > .problem")?.remove();
  const data = new FormData(form, button);
  const body = form.getAttribute("enctype") === "multipart/form-data" ? data : new URLSearchParams(data);
  const finish = "draft" in form.dataset ? empty(form, button) : lock(form);
  sending = sending.then(() => post(form, body)).then(finish);
}

// post sends a form, and returns whether the server accepted it. A field of the form can hide the property action.
async function post(form, body) {
  try {
    const answer = await fetch(form.getAttribute("action"), { method: "POST", headers: { Accept: "text/plain" }, body });
    if (answer.status === 401) {
      location.reload();
    } else if (!answer.ok) {
      showProblem(form, await answer.text());
    } else if (!page || new URL(answer.headers.get("Location"), location).pathname !== location.pathname) {
      location.assign(answer.headers.get("Location")); // a live page shows the result itself
    }
    return answer.ok;
  } catch {
    showProblem(form, byID("offline").dataset.unsent);
    return false;
  }
}

function lock(form) {
  const setDisabled = (disabled) => form.querySelectorAll("button").forEach((button) => (button.disabled = disabled));
  const focused = document.activeElement;
  setDisabled(true);
  return (accepted) => {
    setDisabled(false);
    if (document.activeElement === document.body) { // a disabled button loses the focus
      focused.focus();
    }
    if (accepted) { // what was sent is no longer only the person's: another browser may change it
      form.querySelectorAll("input, textarea").forEach((field) => (field.defaultValue = field.value));
      form.querySelectorAll("option").forEach((option) => (option.defaultSelected = option.selected));
      form.closest("details[data-closes]")?.removeAttribute("open");
    }
  };
}

function showProblem(form, text) {
  const problem = document.createElement("p");
  problem.className = "problem";
  problem.setAttribute("role", "alert");
  problem.textContent = text;
  form.append(problem);
}

// What a person has written stays in the browser of the account until it is sent, and not after its logout.
const draftPrefix = "draft ";
function forgetDrafts() {
  Object.keys(localStorage).filter((key) => key.startsWith(draftPrefix)).forEach((key) => localStorage.removeItem(key));
}

document.addEventListener("submit", (event) => {
  if (/^\/(logout|account\/logins\/end)$/.test(event.target.getAttribute("action"))) {
    forgetDrafts();
  }
  if ("send" in event.target.dataset && !event.submitter?.hasAttribute("formaction")) { // which leads to a page
    event.preventDefault();
    if (event.target.closest(".card, .group")) {
      still = Date.now() + 600;
    }
    send(event.target, event.submitter);
  }
});

// A form that a person opens alone is seen whole, above what stays at the end of the screen.
document.addEventListener("toggle", (event) => event.target.matches(".alone[open]") && event.target.scrollIntoView({ block: "nearest" }), true);

// Escape closes an open menu, and the focus goes back to where the menu was opened.
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && document.querySelector(".menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

showLocalTimes();
if (page) {
  document.addEventListener("visibilitychange", connect);
  window.addEventListener("online", connect);
  window.addEventListener("offline", connect); // the attempt fails at once
  window.addEventListener("pageshow", connect); // the first time, and when the browser shows the page again
  window.addEventListener("pagehide", disconnect);
  setInterval(reconnectIfSilent, 1000);
}
