// The log of a chat, a terminal or a replay. The script follows the end of the log, counts new entries, loads earlier ones, and shows
// text that is being written.
"use strict";

const log = byID("log");

// The end. A person at the end of the log stays there. Elsewhere the view does not move.

let unseen = 0; // entries below the view
let follows = false; // the view was at the end before a change
let anchor = null; // the first visible entry before a change; anchorTop is its position
let anchorTop = 0;
const waits = ".card:is(.draft, .asked)"; // a request or question without an answer
const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 80;

function toEnd() {
  log.scrollTop = log.scrollHeight;
}

// toNew goes to the end. If an entry is a request that waits and does not begin in view there, it goes to its beginning.
function toNew(entry) {
  toEnd();
  if (entry?.matches(waits) && entry.getBoundingClientRect().top < log.getBoundingClientRect().top) {
    entry.scrollIntoView({ block: "start" });
  }
}

function showUnseen() {
  unseen = atEnd() ? 0 : unseen;
  byID("new").hidden = unseen === 0;
  byID("new").textContent = unseen + " " + byID("new").dataset.text;
}

function showChange(added) {
  if (follows && added > 0) {
    toNew(byID("entries").lastElementChild);
  } else if (follows) {
    toEnd();
  } else {
    unseen += added;
  }
  showUnseen();
}

function rememberView() {
  const top = log.getBoundingClientRect().top;
  follows = atEnd();
  anchor = [...byID("entries").children].find((entry) => entry.getBoundingClientRect().bottom > top);
  anchorTop = anchor?.getBoundingClientRect().top;
}

document.addEventListener("updating", rememberView);
document.addEventListener("updated", (event) => {
  if (anchor?.isConnected) { // Safari moves the view when something above it changes
    log.scrollTop += anchor.getBoundingClientRect().top - anchorTop;
  }
  for (const part of written.keys()) {
    showText(part);
  }
  showChange(event.detail);
});

// Text that is being written

let written = new Map(); // by part

document.addEventListener("connected", () => (written = new Map())); // the server sends it again
document.addEventListener("text", ({ detail: { part, text } }) => {
  follows = atEnd();
  written.set(part, (written.get(part) ?? "") + text);
  showText(part, text);
  showChange(0);
});

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

// Earlier entries are loaded when a person scrolls up to the first one.
const earlier = new IntersectionObserver(async (changes) => {
  const link = changes.at(-1); // a busy browser reports several changes together, and only the last one still holds
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

// A turn that shows nothing new for a while says for how long: the model provider may have stalled.
let lastNew = Date.now();
for (const name of ["updated", "text"]) {
  document.addEventListener(name, () => (lastNew = Date.now()));
}
setInterval(() => {
  const silence = Math.floor((Date.now() - lastNew) / 1000);
  for (const state of document.querySelectorAll("#head .turn.running")) {
    state.dataset.silence = silence < 20 ? "" : byID("head").dataset.silent.replace("%s", silence);
  }
}, 1000);

if (!location.hash) { // else the browser goes to that entry
  toNew(document.querySelector("#entries " + waits));
}
log.addEventListener("scroll", showUnseen, { passive: true });
observeEarlier();
byID("new").addEventListener("click", toEnd);
