// The replay of a chat: it shows other moments without loading the page, and plays. app.js puts the elements of a moment into the page.
"use strict";

const controls = byID("controls");
const scrubber = byID("scrubber");
const playButton = byID("play");
const aheadCount = 32; // moments that are fetched together while it plays
const longestPause = 2000; // ms

let ahead = []; // the moments behind the one that is shown, in order
let fetching = new AbortController(); // the newest request
let timer = null; // until the next moment, while it plays
let playing = false;
let current = Number(scrubber.value); // the moment that is shown; the scrubber may be ahead of it
let wanted = null; // the query of the moment to show next
let busy = false; // with the one before
let addressing = null; // timer until the address names the moment that is shown

async function fetchMoments(query) {
  fetching.abort();
  fetching = new AbortController();
  const answer = await fetch(controls.dataset.moments + "?" + query, { signal: fetching.signal });
  if (answer.status === 401 || answer.redirected) {
    location.reload();
  }
  if (!answer.ok) {
    throw new Error(await answer.text());
  }
  return answer.json();
}

// seek shows a moment, and fetches those behind it for playing. It returns whether it did.
async function seek(query, more = 0) {
  ahead = [];
  try {
    const moments = await fetchMoments(query + "&more=" + more);
    ahead = moments.slice(1);
    showMoment(moments[0]);
    byID("offline").hidden = true;
    return true;
  } catch (problem) {
    byID("offline").hidden = problem.name === "AbortError";
    return false;
  }
}

// showMoment shows a moment.
function showMoment(moment) {
  update(moment.html);
  observeEarlier();
  current = moment.number;
  if (wanted === null) { // else a person has moved it further
    scrubber.value = moment.number;
  }
  scrubber.setAttribute("aria-valuetext", byID("number").textContent + ": " + byID("event").querySelector("h2").textContent.trim());
  clearTimeout(addressing); // Safari refuses more than 100 changes of the address in 10 s
  addressing = setTimeout(() => history.replaceState(null, "", "?seq=" + moment.sequence), 300);
}

// want shows a moment once the one before is shown. Of several that a person passes by meanwhile it shows the last.
async function want(query) {
  setPlaying(false);
  wanted = query;
  while (wanted !== null && !busy) {
    const next = wanted;
    wanted = null;
    busy = true;
    await seek(next);
    busy = false;
  }
}

// Playing

function setPlaying(on) {
  playing = on;
  clearTimeout(timer);
  playButton.textContent = on ? playButton.dataset.pause : playButton.dataset.play;
}

async function play() {
  setPlaying(true);
  const first = current >= Number(scrubber.max) ? 1 : current;
  if (await seek("event=" + first, aheadCount)) {
    next();
  }
}

// next shows the next moment after the time that the chat took, divided by the speed.
function next() {
  const moment = ahead[0];
  if (!playing || !moment) {
    setPlaying(false);
    return;
  }
  timer = setTimeout(async () => {
    ahead.shift();
    showMoment(moment);
    if (ahead.length > 0 || current >= Number(scrubber.max) || (await seek("event=" + current, aheadCount))) {
      next();
    }
  }, Math.min(moment.wait / Number(byID("speed").value), longestPause));
}

// go shows the moment that a link leads to.
function go(link) {
  if (link?.href) {
    want(new URL(link.href).search.slice(1));
  }
}

scrubber.addEventListener("input", () => want("event=" + scrubber.value));
controls.addEventListener("submit", (event) => event.preventDefault());
playButton.addEventListener("click", () => (playing ? setPlaying(false) : play()));
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-step], #steps a");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    go(link);
  }
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select")) {
    return;
  }
  const link = {
    ArrowLeft: event.shiftKey ? "earlier-mark" : "earlier", ArrowRight: event.shiftKey ? "later-mark" : "later", Home: "first", End: "last",
  }[event.key];
  if (link) {
    event.preventDefault();
    go(byID(link));
  } else if (event.key === " " && !event.target.matches("button, summary")) {
    event.preventDefault();
    playButton.click();
  }
});

byID("go").hidden = true;
playButton.hidden = false;
byID("speed").hidden = false;
