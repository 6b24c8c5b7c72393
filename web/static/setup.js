// The one-time link is /setup#CODE. Browsers do not send the fragment, so no log and no referrer has the code. The script moves it
// from the address bar and the history into the form.
"use strict";

if (location.hash.length > 1) {
  const code = document.getElementById("code");
  code.value = decodeURIComponent(location.hash.slice(1));
  code.parentElement.hidden = true;
  history.replaceState(null, "", location.pathname);
}
