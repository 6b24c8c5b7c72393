// The page of one permission request, /requests/ID. The login of this page stays in the browser's storage until it expires.
"use strict";

const byID = (id) => document.getElementById(id);
const id = decodeURIComponent(location.pathname.slice("/requests/".length));
const tokenName = "pocketcoder-token";
let request = null;

// visible replaces every character that would not be visible by its number, so that nothing hides in what is approved.
function visible(text) {
  const hidden = /[\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]|(?![ \n\t])[\p{Zs}\p{C}]/gu;
  return text.replace(hidden, (c) => "<U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + ">");
}

// visibleLine keeps a text on one line as well: a folder's name may hold line breaks.
const visibleLine = (text) => visible(text).replaceAll("\n", "␊").replaceAll("\t", "␉");

async function call(method, path, body) {
  const headers = { "Content-Type": "application/json" };
  const token = localStorage.getItem(tokenName);
  if (token !== null) {
    headers.Authorization = token;
  }
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  const result = await answer.json();
  if (answer.status === 401) {
    localStorage.removeItem(tokenName);
  }
  if (!answer.ok) {
    const faults = Object.values(result.data ?? {}).map((fault) => fault.message);
    throw new Error([result.message, ...faults].join(" "));
  }
  return result;
}

// describe returns the title of a request and all that an approval would allow.
function describe(r) {
  const about = r.metadata ?? {};
  if (r.permission === "network" || r.permission === "budget") {
    return { title: r.permission === "network" ? "Reach " + r.patterns.join(", ") : "Allow more spending", text: r.message };
  }
  if (about.command) {
    const lines = about.command.trimEnd().split("\n").length;
    return { title: lines > 1 ? `Run a command of ${lines} lines` : "Run a command", text: about.command };
  }
  const file = about.filepath ?? "";
  if (about.diff) {
    const lines = about.diff.trimEnd().split("\n");
    const first = lines.findIndex((line) => line.startsWith("@@"));
    const hunks = lines.slice(Math.max(first, 0));
    const count = (sign) => hunks.filter((line) => line.startsWith(sign)).length;
    if (about.files?.length > 0) { // the reason says what a patch does to each file
      return { title: `Apply a patch (${about.files.length} files)`.replace("(1 files)", "(1 file)"), text: about.diff };
    }
    const verb = hunks[0].startsWith("@@ -0,0 ") ? "Write" : "Edit";
    return { title: `${verb} ${file.split("/").pop()} (+${count("+")} −${count("-")})`, text: first > 4 ? about.diff : file + "\n" + hunks.join("\n") };
  }
  const details = Object.entries(about) // for a search: the folder and the pattern of file names
    .filter(([name]) => !["filepath", "filePath", "url"].includes(name))
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return { title: "Use " + r.permission, text: [file || about.url || (r.patterns ?? []).join("\n") || r.message, ...details].join("\n") };
}

function showText(text) {
  byID("text").replaceChildren(
    ...text.split("\n").map((line) => {
      const shown = document.createElement("span");
      shown.textContent = visible(line) + "\n";
      shown.className = { "+": "added", "-": "removed", "@": "hunk" }[line[0]] ?? "";
      return shown;
    }),
  );
}

const states = {
  draft: "waits for your decision",
  authorized: "approved",
  denied: "denied",
  expired: "expired: nobody decided in time",
};

function show() {
  const { title, text } = describe(request);
  byID("title").textContent = document.title = visible(title);
  showText(text);
  byID("where").textContent = visibleLine(request.cwd || "not known");
  byID("why").textContent = visibleLine(request.referred_reason || "-");
  byID("chat").textContent = visible(request.expand?.chat?.title ?? request.chat);
  byID("state").textContent = states[request.status] ?? request.status;
  byID("decide").hidden = request.status !== "draft";
}

// load reads the request, by OpenCode's id of it, which is what notifications have.
async function load() {
  const query = new URLSearchParams({ filter: `ai_engine_permission_id = ${JSON.stringify(id)}`, expand: "chat", skipTotal: "1" });
  const found = await call("GET", "/api/collections/permissions/records?" + query);
  if (found.items.length === 0) {
    throw new Error("There is no such request, or it is not in a chat of yours.");
  }
  request = found.items[0];
  show();
}

// refresh shows what there is to show for who is logged in.
async function refresh() {
  const loggedIn = () => localStorage.getItem(tokenName) !== null;
  byID("problem").textContent = "";
  try {
    if (loggedIn()) {
      await load();
    }
  } catch (failure) {
    byID("problem").textContent = failure.message;
  }
  byID("login").hidden = loggedIn();
  byID("request").hidden = !loggedIn() || request === null;
  byID("logout").hidden = !loggedIn();
}

// submit calls what a form does, with its button disabled.
function onSubmit(form, act) {
  byID(form).addEventListener("submit", async (event) => {
    event.preventDefault();
    event.submitter.disabled = true;
    try {
      await act(event);
      await refresh();
    } catch (failure) {
      await refresh();
      byID("problem").textContent = failure.message;
    } finally {
      event.submitter.disabled = false;
    }
  });
}

onSubmit("login", async () => {
  const body = { identity: byID("email").value, password: byID("password").value };
  const login = await call("POST", "/api/collections/users/auth-with-password", body);
  localStorage.setItem(tokenName, login.token);
  byID("password").value = "";
});

onSubmit("decide", async (event) => {
  const body = { status: event.submitter.value, shown_request: request.request };
  if (body.status === "denied" && byID("reason").value !== "") {
    body.reason = byID("reason").value;
  }
  await call("PATCH", "/api/collections/permissions/records/" + encodeURIComponent(request.id), body);
});

byID("logout").addEventListener("click", () => {
  localStorage.removeItem(tokenName);
  request = null;
  refresh();
});

window.addEventListener("focus", refresh);
refresh();
