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

const line = byID("new-line");
if (line && !location.hash) {
  line.scrollIntoView();
  unseen = document.querySelectorAll("#new-line ~ article").length;
  showUnseen();
}
if (byID("newest")) {
  setInterval(() => document.hidden || reportSeen(), reportEvery);
  document.addEventListener("visibilitychange", () => document.hidden && reportSeen()); // the last look
  window.addEventListener("pagehide", reportSeen);
}
