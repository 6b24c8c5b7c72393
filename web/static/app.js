// The script of the web app. A page shows its content and sends its forms without it. The script keeps the page up to date from
// its stream (web/pages/site/live.go), sends forms without leaving the page, and follows the end of a chat.
"use strict";

const byID = (id) => document.getElementById(id);
const page = document.querySelector("[data-live]");
const log = byID("log");

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
  ignoreActiveValue: true,
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
  keepPlace(() => {
    const added = elementsOf(html).reduce((n, element) => n + put(element), 0);
    for (const part of written.keys()) {
      showText(part);
    }
    showLocalTimes();
    return added;
  });
  document.dispatchEvent(new Event("updated"));
}

// After a person has tapped a card the page stays as it is for a moment, so that a second tap does not hit the card that moves up.
let still = 0; // until when
const held = [];

function receive(html) {
  held.push(html);
  const wait = still - Date.now();
  if (wait > 0) {
    setTimeout(release, wait);
  } else {
    release();
  }
}

function release() {
  while (held.length > 0 && Date.now() >= still) {
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

// Text that is being written

let written = new Map(); // by part

function appendText({ part, text }) {
  written.set(part, (written.get(part) ?? "") + text);
  keepPlace(() => showText(part, text) ?? 0);
}

// showText shows the text of a part. Once the whole part has arrived as elements, its text is forgotten.
function showText(part, piece) {
  const shown = byID("part-" + part);
  const text = written.get(part);
  if (shown && !shown.matches(".writing")) {
    written.delete(part);
  } else if (shown && piece && shown.textContent + piece === text) {
    shown.append(piece);
  } else if (shown && shown.textContent !== text) {
    shown.textContent = text;
  }
}

// The end of a chat

let unseen = 0;
const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 80;

function toEnd() {
  log.scrollTop = log.scrollHeight;
}

// keepPlace changes the page. A person at the end of the log stays there; elsewhere the view does not move.
function keepPlace(change) {
  const follow = log && atEnd();
  unseen += change();
  if (follow) {
    toEnd();
  }
  showUnseen();
}

// Earlier messages are loaded when a person scrolls up to the first one.
const earlier = new IntersectionObserver(async ([link]) => {
  if (!link.isIntersecting) {
    return;
  }
  earlier.unobserve(link.target);
  const href = link.target.href;
  const answer = await fetch(href);
  const text = await answer.text();
  if (!answer.ok || link.target.href !== href || !link.target.isConnected) { // the page shows another moment of a replay by now
    return; // the link is still there
  }
  const more = new DOMParser().parseFromString(parser.createHTML(text), "text/html");
  const toBottom = log.scrollHeight - log.scrollTop;
  byID("entries").prepend(...more.querySelectorAll("#entries > *"));
  link.target.replaceWith(more.querySelector("#earlier-messages") ?? "");
  log.scrollTop = log.scrollHeight - toBottom;
  showLocalTimes();
  observeEarlier();
});

function observeEarlier() {
  if (byID("earlier-messages")) {
    earlier.observe(byID("earlier-messages"));
  }
}

function showUnseen() {
  if (log) {
    unseen = atEnd() ? 0 : unseen;
    byID("new").hidden = unseen === 0;
    byID("new").textContent = unseen + " " + byID("new").dataset.text;
  }
}

// The stream

let stream = null;
let heard = 0;
let failing = null; // timer until the banner is shown
let retry = null;
let pause = 1000; // until the next attempt to connect, in ms

function connect() {
  disconnect();
  if (document.hidden) {
    return;
  }
  heard = Date.now();
  failing ??= setTimeout(() => (byID("offline").hidden = false), 3000);
  stream = new EventSource(page.dataset.live);
  stream.onopen = () => (written = new Map()); // the server sends it again
  stream.onmessage = (event) => {
    receive(JSON.parse(event.data));
    page.dataset.live = page.dataset.live.replace(/after=\d+/, "after=" + event.lastEventId);
    isConnected();
  };
  stream.addEventListener("text", (event) => appendText(JSON.parse(event.data)));
  stream.addEventListener("ping", isConnected);
  stream.addEventListener("reload", () => location.reload());
  stream.onerror = () => {
    stream.close();
    failing ??= setTimeout(() => (byID("offline").hidden = false), 3000);
    clearTimeout(retry);
    retry = setTimeout(connect, pause);
    pause = Math.min(pause * 2, 16000); // the server may be busy, or refuse more pages
  };
}

function disconnect() {
  stream?.close();
  stream = null;
  clearTimeout(retry);
}

function isConnected() {
  heard = Date.now();
  pause = 1000;
  clearTimeout(failing);
  failing = null;
  byID("offline").hidden = true;
  byID("stored-at").hidden = true; // the page is up to date now
}

function onVisibility() {
  if (document.hidden) {
    disconnect();
    isConnected(); // nobody looks
  } else {
    connect();
  }
}

// Forms

let sending = Promise.resolve(); // one after the other, so that messages arrive in the order in which they were written

function send(form, button) {
  form.querySelector(".problem")?.remove();
  const data = new FormData(form, button);
  const body = form.getAttribute("enctype") === "multipart/form-data" ? data : new URLSearchParams(data);
  const finish = form.matches(".composer") ? empty(form) : lock(form);
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

// empty makes the composer ready for the next message. A message that was not sent comes back, with its id.
function empty(form) {
  const { id, text, file } = form.elements;
  const sent = [id.value, text.value, file.files];
  id.value = Array.from(crypto.getRandomValues(new Uint8Array(15)), (n) => (n % 36).toString(36)).join("");
  text.value = "";
  file.value = "";
  showAttached(file);
  toEnd();
  return (accepted) => {
    if (!accepted) {
      id.value = sent[0];
      text.value = [sent[1], text.value].filter(Boolean).join("\n");
      file.files = sent[2];
      showAttached(file);
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

// Files are chosen, pasted or dropped.

function showAttached(input) {
  input.nextElementSibling.textContent = "+" + (input.files.length || "");
  input.parentElement.title = [...input.files].map((file) => file.name).join(", ") || input.ariaLabel;
}

function attach(event, transfer) {
  const input = event.target.closest?.("form")?.elements.file;
  if (input && transfer.files.length > 0) {
    event.preventDefault();
    input.files = transfer.files;
    showAttached(input);
  }
}

document.addEventListener("paste", (event) => attach(event, event.clipboardData));
document.addEventListener("drop", (event) => attach(event, event.dataTransfer));
document.addEventListener("change", (event) => event.target.type === "file" && showAttached(event.target));

// The commands that begin as the text does are listed above the composer.
function showCommands() {
  const typed = byID("text").value;
  const fits = (name) => typed.startsWith("/") && (name.startsWith(typed) || typed.startsWith(name + " "));
  let any = false;
  for (const command of byID("commands").children) {
    command.hidden = !fits(command.dataset.command);
    any ||= !command.hidden;
  }
  byID("commands").hidden = !any;
}

if (byID("commands")) {
  byID("text").addEventListener("input", showCommands);
  byID("commands").addEventListener("click", (event) => {
    byID("text").value = event.target.closest("[data-command]").dataset.command;
    byID("text").focus();
    showCommands();
  });
}

document.addEventListener("submit", (event) => {
  if ("send" in event.target.dataset) {
    event.preventDefault();
    if (event.target.closest(".card, .group")) {
      still = Date.now() + 600;
    }
    send(event.target, event.submitter);
  }
});

// Enter sends, Shift and Enter begin a line. On a phone, Enter begins a line too: its keyboard has no Shift and Enter.
document.addEventListener("keydown", (event) => {
  const sends = event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target.matches(".composer textarea");
  if (sends && !matchMedia("(pointer: coarse)").matches) {
    event.preventDefault();
    event.target.form.requestSubmit();
  }
});

showLocalTimes();
if (log) {
  if (!location.hash) { // else the browser goes to that entry
    toEnd();
  }
  log.addEventListener("scroll", showUnseen, { passive: true });
  observeEarlier();
  byID("new").addEventListener("click", toEnd);
}
if (page) {
  document.addEventListener("visibilitychange", onVisibility);
  window.addEventListener("online", connect);
  window.addEventListener("pageshow", connect); // the first time, and when the browser shows the page again
  window.addEventListener("pagehide", disconnect);
  setInterval(() => document.hidden || Date.now() - heard < 40000 || connect(), 5000);
}
