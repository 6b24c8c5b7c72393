// Tells the server up to where the account has seen a chat: when its end is in sight, and something is there that was not seen.
"use strict";

const seenPath = location.pathname + "/seen";
const reportEvery = 3000; // ms
let reported = Number(log.dataset.seen ?? 0);

function reportSeen() {
  const { seq } = byID("newest").dataset;
  if (Number(seq) <= reported || !atEnd()) {
    return;
  }
  const before = reported;
  reported = Number(seq);
  fetch(seenPath, { method: "POST", headers: { Accept: "text/plain" }, body: new URLSearchParams({ seq }), keepalive: true }).catch(() => {
    reported = before; // the next time
  });
}

// The page opens at the first new entry, or at a request that waits. An entry whose end is not in view counts as new.
const line = byID("new-line");
if (line && !location.hash) {
  if (!document.querySelector("#entries " + waits)) {
    line.scrollIntoView();
  }
  const bottom = log.getBoundingClientRect().bottom;
  unseen = [...document.querySelectorAll("#new-line ~ article")].filter((entry) => entry.getBoundingClientRect().bottom > bottom + 1).length;
  showUnseen();
}
if (byID("newest")) {
  setInterval(() => document.hidden || reportSeen(), reportEvery);
  document.addEventListener("visibilitychange", () => document.hidden && reportSeen()); // the last look
  window.addEventListener("pagehide", reportSeen);
}
