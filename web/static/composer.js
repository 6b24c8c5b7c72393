// The composer of a message: files, slash commands and the Enter key. app.js sends its form.
"use strict";

// empty makes the composer ready for the next message. A message that was not sent comes back, with its id.
function empty(form) {
  const { id, text, file } = form.elements;
  const files = new DataTransfer(); // the field empties its own list
  [...file.files].forEach((one) => files.items.add(one));
  const sent = [id.value, text.value, files.files];
  id.value = Array.from(crypto.getRandomValues(new Uint8Array(15)), (n) => (n % 36).toString(36)).join("");
  setText(text, "");
  file.value = "";
  showAttached(file);
  toEnd();
  return (accepted) => {
    if (!accepted) {
      id.value = sent[0];
      setText(text, [sent[1], text.value].filter(Boolean).join("\n"));
      file.files = sent[2];
      showAttached(file);
    }
  };
}

// setText changes a text as typing does.
function setText(field, text) {
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

// fitHeight makes a field as high as its text, for browsers without field-sizing, such as Safari 26.0.
function fitHeight(field) {
  field.style.height = "auto";
  field.style.height = field.scrollHeight + field.offsetHeight - field.clientHeight + "px";
}

if (!CSS.supports("field-sizing", "content")) {
  document.querySelectorAll(".composer textarea").forEach(fitHeight);
  document.addEventListener("input", (event) => event.target.matches(".composer textarea, .edit textarea") && fitHeight(event.target));
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
    setText(byID("text"), event.target.closest("[data-command]").dataset.command);
    byID("text").focus();
  });
}

// Enter sends. Shift and Enter begin a line. On a phone, Enter also begins a line, because the keyboard has no Shift and
// Enter. An Enter that chooses a word of an input method sends nothing: Safari marks it only with the key code 229.
document.addEventListener("keydown", (event) => {
  const chooses = event.isComposing || event.keyCode === 229;
  const sends = event.key === "Enter" && !event.shiftKey && !chooses && event.target.matches(".composer textarea");
  if (sends && !matchMedia("(pointer: coarse)").matches) {
    event.preventDefault();
    event.target.form.requestSubmit();
  }
});
