// The form behind the one-time link /setup#TOKEN. The token is kept here and taken out of the address bar and the history.
"use strict";

const byID = (id) => document.getElementById(id);
const fields = ["email", "name", "password", "passwordConfirm"];
const loopback = ["localhost", "127.0.0.1", "[::1]"];

const token = location.hash.slice(1);
if (token !== "") {
  history.replaceState(null, "", location.pathname);
  byID("no-token").hidden = true;
  byID("setup").hidden = false;
}

function showProblems(message, faults) {
  for (const name of fields) {
    byID(name + "-problem").textContent = faults[name]?.message ?? "";
  }
  const shown = Object.keys(faults).some((name) => fields.includes(name));
  byID("problem").textContent = shown ? "" : message;
}

function showNextStep() {
  byID("setup").hidden = true;
  byID("done").hidden = false;
  byID("address").textContent = location.origin;
  byID("loopback").hidden = !loopback.includes(location.hostname);
}

async function send(account) {
  const answer = await fetch("/api/pocketcoder/setup", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token, ...account }),
  });
  if (answer.ok) {
    showNextStep();
    return;
  }
  const problem = await answer.json();
  showProblems(problem.message, problem.data);
}

byID("setup").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { passwordConfirm, ...account } = Object.fromEntries(new FormData(event.target));
  if (account.password !== passwordConfirm) {
    showProblems("", { passwordConfirm: { message: "The passwords differ." } });
    return;
  }
  const button = event.submitter;
  button.disabled = true;
  showProblems("", {});
  try {
    await send(account);
  } catch (failure) {
    showProblems("The server could not be reached: " + failure.message, {});
  } finally {
    button.disabled = false;
  }
});
