// Comments on lines of changes: a line that is pressed is quoted in the next message. The text is kept until it is sent, also when
// the person looks at another page meanwhile.
"use strict";

const text = document.getElementById("text");
const kept = "comments " + location.pathname;

function quote(line) {
  const file = line.closest("[data-file]").dataset.file;
  const before = text.value.trim() === "" ? "" : text.value.trimEnd() + "\n\n";
  setText(text, before + file + ":" + line.dataset.line + "\n> " + line.textContent.trimEnd() + "\n\n");
  text.focus();
  text.setSelectionRange(text.value.length, text.value.length);
  text.scrollTop = text.scrollHeight;
}

function keep() {
  sessionStorage.setItem(kept, text.value);
}

if (text) {
  text.value = sessionStorage.getItem(kept) ?? "";
  text.addEventListener("input", keep);
  text.form.addEventListener("submit", () => sessionStorage.removeItem(kept));
  for (const pre of document.querySelectorAll("[data-file]")) {
    pre.querySelectorAll("[data-line]").forEach((line, i) => (line.tabIndex = i === 0 ? 0 : -1)); // one stop for each file; arrows move
  }
  document.addEventListener("click", (event) => {
    const line = event.target.closest("[data-line]");
    if (line && String(getSelection()) === "") { // a person who selects text wants to copy it
      quote(line);
    }
  });
  document.addEventListener("keydown", (event) => {
    const line = event.target.closest("[data-line]");
    if (!line) {
      return;
    }
    const sibling = (next) => {
      let other = line[next];
      while (other && !other.dataset.line) {
        other = other[next];
      }
      return other;
    };
    const act = { Enter: () => quote(line), ArrowDown: () => sibling("nextElementSibling")?.focus(), ArrowUp: () => sibling("previousElementSibling")?.focus() }[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });
}
