// The one-time link is /setup#CODE. Browsers do not send the fragment, so no log and no referrer has the code. The script moves it
// from the address bar and the history into the form. The tab keeps it until the server refuses it, for a page that is reloaded.
"use strict";

const code = document.getElementById("code");
if (location.hash.length > 1) {
  sessionStorage.setItem("setup-code", decodeURIComponent(location.hash.slice(1)));
  history.replaceState(null, "", location.pathname);
} else if (document.getElementById("problem").textContent && !code.value) {
  sessionStorage.removeItem("setup-code");
}
if (!code.value && sessionStorage.getItem("setup-code")) {
  code.value = sessionStorage.getItem("setup-code");
  code.parentElement.hidden = true;
}
